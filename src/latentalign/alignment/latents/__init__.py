"""What can be latent: the protocol, alignments with independent steps, and continuous latents."""
