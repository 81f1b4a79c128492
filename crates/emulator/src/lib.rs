//! A strict local Azure: Entra, Key Vault, IMDS and ARM behind an intercepting proxy
