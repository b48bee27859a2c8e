"""docs/settings.md says what the settings are."""

import settings_docs

from pipeline.config import settings_json_schema


def test_page_is_not_stale() -> None:
    page = settings_docs.settings_page(settings_json_schema())
    assert settings_docs.OUTPUT.read_text() == page, f"run {settings_docs.RENEW}"


def test_page_has_a_section_for_each_feature_kind() -> None:
    page = settings_docs.settings_page(settings_json_schema())
    for kind in ("numeric", "bucketized", "categorical", "crossed", "cyclic", "text"):
        assert f"## `features.<name>` with `kind: {kind}`\n" in page


def test_key_is_shown_with_limits_default_and_meaning() -> None:
    age = {"type": "integer", "minimum": 1, "default": 7, "description": "Years | days"}
    page = settings_docs.settings_page({"properties": {"age": age}})
    assert "| `age` | whole number at least `1` | `7` | Years \\| days |\n" in page


def test_every_top_level_key_is_on_the_page() -> None:
    page = settings_docs.settings_page(settings_json_schema())
    for key in settings_json_schema()["properties"]:
        assert f"\n| `{key}` |" in page
