//! The version of the KMS API between the API server and its KMS plugins.

/// The version of the KMS API between the API server and its KMS plugins.
///
/// A configuration keeps its version: HyperShift writes `v2` into a new one, and copies the version
/// of an existing one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KmsApiVersion {
    /// The version of configurations that an early release of HyperShift created.
    V1,
    /// The version of every new configuration.
    #[default]
    V2,
}

impl KmsApiVersion {
    /// Returns the value of `apiVersion` of a KMS provider.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}
