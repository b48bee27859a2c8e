"""Request logging: a sample of requests and answers, in TFRecord files of PredictionLogs.

What is logged a LoggingConfig says (see TensorFlow Serving's logging_config.proto).
Files are `PREFIX-START-NUMBER.tfrecord`; a full one is followed by the next, and the
oldest goes, so that a log never fills a disk. A warm-up file is such a file.
"""

import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from serving import apis, tfrecord
from serving.errors import Code
from serving.model_server_config import ModelConfig
from serving.server.call import Call
from serving.server.logs import event

log = logging.getLogger(__name__)
MAX_FILE_BYTES = 64 << 20
MAX_FILES = 10
Build = Callable[[Any], None]
"""Writes request and response into a PredictionLog."""


class RequestLog:
    """The log of one model."""

    def __init__(
        self,
        config: Any,
        *,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_files: int = MAX_FILES,
        random_source: random.Random | None = None,
    ) -> None:
        """Log as a LoggingConfig says."""
        self._sampling = config.sampling_config
        self._prefix = Path(config.log_collector_config.filename_prefix)
        self._max_file_bytes, self._max_files = max_file_bytes, max_files
        self._random = random_source or random.Random()
        self._start = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        self._number = 0
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def takes(self) -> bool:
        """Draw whether a request belongs to the sample."""
        rate: float = self._sampling.sampling_rate
        return rate > 0 and (rate >= 1 or self._random.random() < rate)

    def write(self, call: Call, build: Build) -> None:
        """Log a request.

        Raises:
            OSError: The disk does not take it.
        """
        entry = apis.PredictionLog()
        spec = entry.log_metadata.model_spec
        spec.name, spec.signature_name = call.model, call.signature
        if call.version is not None:
            spec.version.value = call.version
        entry.log_metadata.sampling_config.CopyFrom(self._sampling)
        entry.log_metadata.timestamp_secs = int(time.time())
        build(entry)
        record = tfrecord.encode(entry.SerializeToString())
        with self._lock:
            file = self._open()
            file.write(record)
            file.flush()

    def _open(self) -> IO[bytes]:
        if self._file is not None:
            is_there = os.fstat(self._file.fileno()).st_nlink
            if is_there and self._file.tell() < self._max_file_bytes:
                return self._file
        self.close()
        self._prefix.parent.mkdir(parents=True, exist_ok=True)
        self._number += 1
        name = f"{self._prefix.name}-{self._start}-{self._number:06d}.tfrecord"
        self._file = self._prefix.with_name(name).open("ab")
        for old in self._files()[: -self._max_files]:
            old.unlink(missing_ok=True)
        return self._file

    def _files(self) -> list[Path]:
        """Return this log's files, oldest first; `m-*` would be those of `m-b`, too."""
        name = re.compile(rf"{re.escape(self._prefix.name)}-\d+T\d+-\d+\.tfrecord")
        return sorted(
            p for p in self._prefix.parent.iterdir() if name.fullmatch(p.name)
        )

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class RequestLogs:
    """The logs of all models, as they are configured now."""

    def __init__(
        self,
        configs: Callable[[], Mapping[str, ModelConfig]],
        count: Callable[[str, Code], None] = lambda *_: None,
    ) -> None:
        """Begin without a log.

        Args:
            configs: Returns the configuration of each model.
            count: Told of each request that was logged, or could not be.
        """
        self._configs, self._count = configs, count
        self._logs: dict[str, tuple[Any, RequestLog]] = {}
        self._lock = threading.Lock()

    def offer(self, call: Call, build: Build) -> None:
        """Log a request if it is sampled; a log that fails fails no request."""
        config = self._configs().get(call.model)
        if config is None or config.logging is None:
            return
        request_log = self._log_of(call.model, config.logging)
        if not request_log.takes():
            return
        try:
            request_log.write(call, build)
        except (OSError, ValueError) as error:
            event(
                log,
                "request_not_logged",
                logging.WARNING,
                model=call.model,
                error=error,
            )
            self._count(call.model, Code.UNKNOWN)
        else:
            self._count(call.model, Code.OK)

    def _log_of(self, name: str, config: Any) -> RequestLog:
        known = self._logs.get(name)
        if known is not None and known[0] is config:
            return known[1]
        with self._lock:
            known = self._logs.get(name)
            if known is not None and known[0] == config:
                # A reload says the same again: the file goes on.
                known = self._logs[name] = (config, known[1])
            if known is None or known[0] is not config:
                if known is not None:
                    known[1].close()
                known = self._logs[name] = (config, RequestLog(config))
            return known[1]

    def close(self) -> None:
        """Close all files."""
        for _, request_log in self._logs.values():
            request_log.close()
