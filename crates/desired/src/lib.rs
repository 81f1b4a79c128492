//! Pure rendering: HostedCluster to SecretProviderClasses, cloud configurations, volumes and identities
