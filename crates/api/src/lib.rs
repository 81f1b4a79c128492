//! Kubernetes wire types: the HostedCluster slice, SecretProviderClass with its parameters
