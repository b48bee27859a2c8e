"""The built-in model: a linear part that memorises, a deep part that generalises.

After Cheng et al., "Wide & Deep Learning for Recommender Systems" (2016).
"""

import keras

from components.trainer.inputs import Input, ModelInputs


def build_model(inputs: ModelInputs) -> keras.Model:
    """Build an uncompiled model from `{name: [batch, 1]}` to `[batch, num_outputs]`.

    The output is a probability (binary), probabilities that add up to 1
    (multiclass), or a number (regression).
    """
    settings = inputs.settings
    layers = {
        spec.name: keras.Input((1,), name=spec.name, dtype=spec.dtype)
        for spec in inputs.inputs
    }
    wide, deep = [], []
    for spec in inputs.inputs:
        if spec.cardinality is None:
            column = keras.ops.cast(layers[spec.name], "float32")
            wide.append(_weights(inputs, spec)(column))
            deep.append(column)
        else:
            wide.append(_embed(layers[spec.name], spec, inputs.num_outputs, "wide"))
            size = settings.embedding_dim or embedding_size(spec.cardinality)
            deep.append(_embed(layers[spec.name], spec, size, "deep"))
    hidden = deep[0] if len(deep) == 1 else keras.layers.Concatenate()(deep)
    for units in settings.hidden_units:
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
        if settings.dropout:
            hidden = keras.layers.Dropout(settings.dropout)(hidden)
    logits = keras.layers.Add()(
        [*wide, keras.layers.Dense(inputs.num_outputs, name="deep_logits")(hidden)]
    )
    output = _output_layer(inputs)(logits)
    return keras.Model(layers, output, name="wide_and_deep")


def _output_layer(inputs: ModelInputs) -> keras.Layer:
    """Return the last layer; float32 whatever the layers before it compute in.

    A regression predicts in units of the label's spread, so that one learning rate
    fits labels of any size.
    """
    if inputs.label_kind == "regression":
        return keras.layers.Rescaling(
            inputs.label_std, inputs.label_mean, dtype="float32", name="prediction"
        )
    activation = {"binary": "sigmoid", "multiclass": "softmax"}[inputs.label_kind]
    return keras.layers.Activation(activation, dtype="float32", name="prediction")


def embedding_size(cardinality: int) -> int:
    """Return `round(1.6 · cardinality^0.56)`, at most 32.

    The rule of thumb of fastai's tabular models, with a lower cap.
    """
    size: float = 1.6 * cardinality**0.56
    return max(1, min(32, round(size)))


def _weights(inputs: ModelInputs, spec: Input) -> keras.Layer:
    return keras.layers.Dense(
        inputs.num_outputs, use_bias=False, name=f"wide_{spec.name}"
    )


def _embed(
    ids: keras.KerasTensor, spec: Input, size: int, part: str
) -> keras.KerasTensor:
    initializer = "zeros" if part == "wide" else "uniform"
    table = keras.layers.Embedding(
        spec.cardinality,
        size,
        embeddings_initializer=initializer,
        name=f"{part}_{spec.name}",
    )
    return keras.layers.Flatten()(table(ids))
