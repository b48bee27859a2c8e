"""The TFX component: reads files columnwise in Beam into tf.Examples by split."""

import json
import logging
from pathlib import Path

import apache_beam as beam
from tfx import v1 as tfx

from components.errors import DataError
from components.example_gen.counts import Counts, check_counts
from components.example_gen.encode import ShardWriter, write_shards
from components.example_gen.request import IngestRequest
from components.example_gen.sources import Source, find_sources
from components.example_gen.splits import SPLITS

log = logging.getLogger(__name__)
COUNTS_PROPERTY = "taxiway_counts"


@tfx.dsl.components.component(use_beam=True)
def ExampleGen(
    examples: tfx.dsl.components.OutputArtifact[tfx.types.standard_artifacts.Examples],
    request: tfx.dsl.components.Parameter[str],
    data_digest: tfx.dsl.components.Parameter[str],
    beam_pipeline: tfx.dsl.components.BeamComponentParameter[beam.Pipeline] = None,
) -> None:
    """Read the files of an `IngestRequest` (JSON) into train and eval splits.

    `data_digest` makes the execution's record name the very bytes it read.
    """
    log.info("data digest: %s", data_digest)
    asked = IngestRequest.model_validate_json(request)
    counts = ingest(asked, Path(examples.uri), beam_pipeline)
    check_counts(counts, asked.label, SPLITS)
    examples.splits = SPLITS
    examples.span = 0
    examples.version = 0
    examples.set_string_custom_property(COUNTS_PROPERTY, counts.model_dump_json())


def ingest(request: IngestRequest, uri: Path, pipeline: beam.Pipeline) -> Counts:
    """Write all examples under `uri` and return what was counted.

    Raises:
        DataError: A file is missing or cannot be read as the settings say.
    """
    sources = find_sources(request)
    tallies = uri / "counts"
    tallies.mkdir(parents=True, exist_ok=True)

    def read_one(numbered: tuple[int, Source]) -> None:
        number, source = numbered
        shard = f"data_tfrecord-{number:05d}-of-{len(sources):05d}"
        try:
            counts = write_shards(request, source, ShardWriter(uri, shard))
        except DataError as error:
            # Beam would bury it in a RuntimeError under frames of its own.
            (tallies / f"{number:05d}.error").write_text(str(error))
        else:
            (tallies / f"{number:05d}.json").write_text(counts.model_dump_json())

    with pipeline as p:
        _ = (
            p
            | "Files" >> beam.Create(list(enumerate(sources)))
            | "Spread" >> beam.Reshuffle()
            | "ReadSplitEncode" >> beam.Map(read_one)
        )
    errors = [file.read_text() for file in sorted(tallies.glob("*.error"))]
    if errors:
        raise DataError("\n".join(errors))
    files = sorted(tallies.glob("*.json"))
    return Counts.total(Counts(**json.loads(file.read_text())) for file in files)
