"""Films in, clips out."""
