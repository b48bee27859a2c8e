"""From files to splits of tf.Examples."""
