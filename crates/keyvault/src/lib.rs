//! SecretProviderClass parameters to Key Vault reads to files in memory
