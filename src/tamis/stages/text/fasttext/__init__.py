"""fastText models: prediction (`model.py`) and training (`training.py`)."""
