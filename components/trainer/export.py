"""The SavedModel of a trained model, with the Transform graph inside.

```
serving_default     examples: [batch] string, serialized tf.Examples  ┐
serving_columns     <column>: [batch, 1], raw values                   ├► prediction
transform_label     examples: [batch] string  ─► label (and weight) as trained on
```

In `serving_columns` NaN, '' and the lowest int64 mean that a value is missing.
`transform_label` is for the Evaluator; it leaves the features out, for TFMA would
slice by their transformed values.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path

import keras
import tensorflow as tf
import tensorflow_transform as tft

from components.features import FeatureTable, Label
from components.trainer.config import TABLE_FILE
from components.transform.preprocess import LABEL_VOCABULARY
from serving.client.names import tensor_name

LABEL_SIGNATURE = "transform_label"
MISSING_INT = tf.int64.min
PREDICTION_KEYS = {
    "binary": "probability",
    "multiclass": "probabilities",
    "regression": "prediction",
}
Outputs = dict[str, tf.Tensor]
Signature = Callable[..., Outputs]


class ServingModel(tf.Module):
    """Owns the model and the Transform layer: both are tracked and saved once."""

    def __init__(
        self, model: keras.Model, transform: tft.TFTransformOutput, table: FeatureTable
    ) -> None:
        super().__init__()
        self._predict_fn = functools.partial(model, training=False)
        # The variables, not the model: a Keras 3 model saved as a child names them so
        # that a session loader (TensorFlow Serving's) does not find them.
        self.model_variables = [variable.value for variable in model.variables]
        self.transform_layer = transform.transform_features_layer()
        self._label = table.label
        self._label_keys = sorted(table.own_keys())
        self._raw_spec = transform.raw_feature_spec()
        inputs = set(table.input_columns())
        self._input_spec = {
            name: spec for name, spec in self._raw_spec.items() if name in inputs
        }
        self._model_inputs = [tensor.name for tensor in model.inputs]
        self._classes = _classes(transform, table.label)

    def signatures(self) -> dict[str, Signature]:
        """Trace each signature once."""
        examples = tf.TensorSpec([None], tf.string, name="examples")
        return {
            "serving_default": tf.function(
                self._serve_examples, autograph=False
            ).get_concrete_function(examples),
            "serving_columns": tf.function(
                self._serve_columns, autograph=False
            ).get_concrete_function(**self._column_specs()),
            LABEL_SIGNATURE: tf.function(
                self._transform_label, autograph=False
            ).get_concrete_function(examples),
        }

    def _serve_examples(self, examples: tf.Tensor) -> Outputs:
        return self._predict(tf.io.parse_example(examples, self._input_spec))

    def _serve_columns(self, **columns: tf.Tensor) -> Outputs:
        return self._predict(
            {
                name: raw_value(columns[tensor_name(name)], spec)
                for name, spec in self._input_spec.items()
            }
        )

    def _transform_label(self, examples: tf.Tensor) -> Outputs:
        transformed = self.transform_layer(
            tf.io.parse_example(examples, self._raw_spec)
        )
        return {key: transformed[key] for key in self._label_keys}

    def _predict(self, raw: Mapping[str, tf.Tensor | tf.SparseTensor]) -> Outputs:
        transformed = self.transform_layer(dict(raw))
        prediction = self._predict_fn(
            {name: transformed[name] for name in self._model_inputs}
        )
        prediction = tf.cast(prediction, tf.float32)
        outputs = {PREDICTION_KEYS[self._label.kind]: prediction}
        if self._classes is not None:
            best = tf.argmax(prediction, axis=-1)[:, tf.newaxis]
            outputs["class"] = tf.gather(self._classes, best)
        return outputs

    def _column_specs(self) -> dict[str, tf.TensorSpec]:
        return {
            tensor_name(name): tf.TensorSpec(
                [None, 1], spec.dtype, name=tensor_name(name)
            )
            for name, spec in self._input_spec.items()
        }


def raw_value(
    column: tf.Tensor, spec: tf.io.VarLenFeature | tf.io.FixedLenFeature
) -> tf.Tensor | tf.SparseTensor:
    """Turn `[batch, 1]` values into what the spec would have parsed.

    A value that means "missing" is left out of the sparse result.
    """
    if isinstance(spec, tf.io.FixedLenFeature):
        return tf.reshape(column, [-1, *spec.shape])
    column = tf.reshape(column, [-1, 1])
    if column.dtype == tf.string:
        present = tf.not_equal(column, "")
    elif column.dtype.is_floating:
        present = ~tf.math.is_nan(column)
    else:
        present = tf.not_equal(column, tf.constant(MISSING_INT, column.dtype))
    indices = tf.where(present)
    return tf.SparseTensor(
        indices,
        tf.gather_nd(column, indices),
        tf.shape(column, out_type=tf.int64),
    )


def _classes(transform: tft.TFTransformOutput, label: Label) -> tf.Tensor | None:
    if label.kind != "multiclass":
        return None
    return tf.constant(transform.vocabulary_by_name(LABEL_VOCABULARY))


def export(
    model: keras.Model,
    transform: tft.TFTransformOutput,
    table: FeatureTable,
    folder: Path,
) -> None:
    """Write the SavedModel with its signatures into a new folder."""
    module = ServingModel(model, transform, table)
    tf.saved_model.save(module, str(folder), signatures=module.signatures())
    path = folder / TABLE_FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(table.model_dump_json(indent=2))
