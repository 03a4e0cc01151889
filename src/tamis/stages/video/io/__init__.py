"""Videos in, clips out."""
