//! The versions of the Key Vault data-plane API, and the features that each version added.
//!
//! Source: the `Versions` enumerations of the Key Vault specifications for secrets, keys and certificates, and
//! the `added` annotations there. Operations and fields that are not listed exist in all versions.

use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;

use super::error::VaultServiceError;

/// The supported API versions, oldest first.
const VERSIONS: [&str; 18] = [
    "2016-10-01",
    "7.0",
    "7.1",
    "7.2",
    "7.3-preview",
    "7.3",
    "7.4-preview.1",
    "7.4",
    "7.5-preview.1",
    "7.5",
    "7.6-preview.1",
    "7.6-preview.2",
    "7.6",
    "2025-06-01-preview",
    "2025-07-01",
    "2026-01-01-preview",
    "2026-03-01-preview",
    "2026-04-01",
];

/// A supported API version, as its index in [`VERSIONS`]: newer versions compare as greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VaultApiVersion(usize);

/// An operation or a field that an API version added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VersionedFeature {
    /// Backup and restore of certificates.
    CertificateBackup,
    /// `rotate` and `rotationpolicy`.
    KeyRotation,
    /// `attributes.exportable` of keys.
    KeyExportability,
    /// `attributes.hsmPlatform` of keys.
    HsmPlatform,
    /// `preserveCertOrder` of certificates.
    CertificateOrder,
    /// `previousVersion` and `outContentType` of secrets.
    SecretConversion,
    /// URIs and IP addresses among the subject alternative names of certificates.
    UriAndAddressNames,
}

impl VersionedFeature {
    const fn first_version(self) -> &'static str {
        match self {
            Self::CertificateBackup => "7.0",
            Self::KeyRotation | Self::KeyExportability => "7.3-preview",
            Self::HsmPlatform => "7.5-preview.1",
            Self::CertificateOrder => "7.6-preview.2",
            Self::SecretConversion | Self::UriAndAddressNames => "2025-06-01-preview",
        }
    }
}

impl VaultApiVersion {
    /// The newest version.
    pub(super) const LATEST: Self = Self(VERSIONS.len() - 1);

    /// Parses the `api-version` of the request.
    pub(super) fn from_request(call: &OperationContext<'_>) -> Result<Self, ServiceReply> {
        let reject = |message: String| VaultServiceError::BadParameter(message).to_reply();
        match call.request.query("api-version").unwrap_or_default() {
            "" => Err(reject("api-version must be specified".to_owned())),
            text => Self::parse(text).ok_or_else(|| {
                reject(format!(
                    "The specified version ({text}) is not recognized. Consider using the latest \
                     supported version ({}).",
                    VERSIONS[Self::LATEST.0]
                ))
            }),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        VERSIONS.iter().position(|known| known.eq_ignore_ascii_case(text)).map(Self)
    }

    /// Whether the version has a feature.
    pub(super) fn has(self, feature: VersionedFeature) -> bool {
        Self::parse(feature.first_version()).is_some_and(|first| first <= self)
    }

    /// Returns an error reply if this version lacks the feature.
    pub(super) fn require(self, feature: VersionedFeature) -> Result<(), ServiceReply> {
        if self.has(feature) {
            return Ok(());
        }
        Err(VaultServiceError::BadParameter(format!(
            "The operation is not available in version {}. It exists since version {}.",
            VERSIONS[self.0],
            feature.first_version()
        ))
        .to_reply())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_starts_at_a_supported_version() {
        use VersionedFeature as Feature;
        let cases = [
            (Feature::CertificateBackup, "2016-10-01", "7.0"),
            (Feature::KeyRotation, "7.2", "7.3"),
            (Feature::KeyExportability, "7.2", "7.4"),
            (Feature::HsmPlatform, "7.4", "7.5"),
            (Feature::CertificateOrder, "7.5", "7.6"),
            (Feature::SecretConversion, "7.6", "2025-07-01"),
            (Feature::UriAndAddressNames, "7.6", "2026-04-01"),
        ];
        for (feature, without, with) in cases {
            assert!(!VaultApiVersion::parse(without).unwrap().has(feature), "{feature:?}");
            assert!(VaultApiVersion::parse(with).unwrap().has(feature), "{feature:?}");
        }
        assert!(VaultApiVersion::parse("7.7").is_none());
    }
}
