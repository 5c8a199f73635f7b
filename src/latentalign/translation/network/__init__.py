"""What is trained: encoders, decoders, the latent between them, the inference network."""
