"""ModelServerConfig: values from messages, messages from values."""

from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from serving import apis
from serving.errors import Code, RequestError, ServerError
from serving.model_server_config import (
    All,
    Latest,
    ModelConfig,
    Policy,
    Specific,
    parse,
    read_text,
    to_text,
)

NAMES = st.text("abcXYZ_09", min_size=1, max_size=6)
POLICIES: st.SearchStrategy[Policy] = (
    st.builds(Latest, st.integers(1, 5))
    | st.builds(All)
    | st.builds(
        Specific,
        st.lists(st.integers(0, 2**62), min_size=1, max_size=3).map(tuple),
    )
)
CONFIGS = st.builds(
    ModelConfig,
    NAMES,
    st.just(Path("/models/m")),
    POLICIES,
    st.dictionaries(NAMES, st.integers(0, 2**62), max_size=3),
)


def config(text: str) -> list[ModelConfig]:
    return parse(text_format.Parse(text, apis.ModelServerConfig()))


@given(st.lists(CONFIGS, max_size=4, unique_by=lambda model: model.name))
def test_what_is_written_is_read(models: list[ModelConfig]) -> None:
    assert config(to_text(models)) == models


def test_the_same_models_give_the_same_text() -> None:
    one = ModelConfig("m", Path("/m"), labels={"stable": 1, "canary": 2})
    other = ModelConfig("m", Path("/m"), labels={"canary": 2, "stable": 1})
    assert to_text([one]) == to_text([other])


def test_num_versions_of_0_is_the_default() -> None:
    [model] = config(
        'model_config_list { config { name: "m" base_path: "/m" '
        'model_platform: "tensorflow" model_version_policy { latest {} } } }'
    )
    assert model.policy == Latest(1)


def test_the_old_way_to_name_the_platform_is_read() -> None:
    [model] = config(
        'model_config_list { config { name: "m" base_path: "/m" '
        "model_type: TENSORFLOW } }"
    )
    assert model.name == "m"


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ('base_path: "/m"', Code.INVALID_ARGUMENT, "a config has no name"),
        ('name: "m" base_path: "m"', Code.INVALID_ARGUMENT, "absolute path or URI"),
        ('name: "m" base_path: "gs://m"', Code.UNIMPLEMENTED, "reads files only"),
        (
            'name: "m" base_path: "/m" version_labels { key: "a-b" value: 1 }',
            Code.INVALID_ARGUMENT,
            "version label 'a-b': allowed: letters",
        ),
        (
            'name: "m" base_path: "/m" model_version_policy { specific {} }',
            Code.INVALID_ARGUMENT,
            "at least one",
        ),
    ],
)
def test_rules(fields: str, code: Code, text: str) -> None:
    with pytest.raises(RequestError, match=text) as refused:
        config(
            f'model_config_list {{ config {{ {fields} model_platform: "tensorflow" }} }}'
        )
    assert refused.value.code is code


def test_custom_config_is_refused() -> None:
    with pytest.raises(RequestError, match="Cannot transition") as refused:
        config("custom_model_config {}")
    assert refused.value.code is Code.FAILED_PRECONDITION


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for content in (None, b"\xff"):
        file = tmp_path / "models.config"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(ServerError, match=str(file)):
            read_text(file, apis.ModelServerConfig)
