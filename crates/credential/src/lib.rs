//! Azure identities from rotating certificate files, federated token files and managed identity endpoints
