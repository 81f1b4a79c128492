//! Metric labels. Every label has a bounded number of values.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::sync::Arc;

use lanyard_telemetry::label_values;
use lanyard_telemetry::prometheus_client::encoding::{
    EncodeLabelSet, EncodeLabelValue, LabelValueEncoder,
};
use parking_lot::Mutex;
use tonic::Code;

use crate::provider::ProviderName;

label_values! {
    /// The operating system of the node; upstream supports two.
    pub(super) enum Os {
        /// Linux, the only supported system.
        Linux = "linux",
    }
}

label_values! {
    /// The kind of object that was read from a vault.
    pub enum ReadKind {
        Secret = "secret",
        Key = "key",
        Certificate = "cert",
    }
}

label_values! {
    /// The result of writing a `SecretProviderClassPodStatus`.
    pub enum PodStatusWriteResult {
        /// The status was up to date.
        Unchanged = "unchanged",
        /// The status was written.
        Written = "written",
        /// The write failed.
        Failed = "failed",
    }
}

label_values! {
    /// The decision of the node policy about a read.
    pub enum PolicyDecision {
        /// A rule allowed the read.
        Allowed = "allowed",
        /// No rule allowed the read; it was served and recorded.
        Audited = "audited",
        /// No rule allowed the read; it was denied.
        Denied = "denied",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct SystemLabels {
    pub(super) os_type: Os,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProviderLabels {
    pub(super) provider: BoundedProviderName,
    pub(super) os_type: Os,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PublishErrorLabels {
    pub(super) provider: BoundedProviderName,
    pub(super) error_type: &'static str,
    pub(super) os_type: Os,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RotationLabels {
    pub(super) provider: BoundedProviderName,
    pub(super) os_type: Os,
    pub(super) rotated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RotationErrorLabels {
    pub(super) provider: BoundedProviderName,
    pub(super) error_type: &'static str,
    pub(super) os_type: Os,
    pub(super) rotated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct VaultLabels {
    pub(super) provider: &'static str,
    pub(super) os_type: Os,
    pub(super) object_type: ReadKind,
    pub(super) error: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct GrpcLabels {
    pub(super) provider: &'static str,
    pub(super) os_type: Os,
    pub(super) grpc_method: &'static str,
    pub(super) grpc_code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CodeLabels {
    pub(super) code: &'static str,
    pub(super) hop: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StatusLabels {
    pub(super) result: PodStatusWriteResult,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PolicyLabels {
    pub(super) decision: PolicyDecision,
}

/// A provider name as a label value, from a bounded set.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct BoundedProviderName(Arc<str>);

impl EncodeLabelValue for BoundedProviderName {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.write_str(&self.0)
    }
}

/// The first few names of providers that exist. The authors of classes choose the names, so that their number
/// must be limited.
#[derive(Debug)]
pub(super) struct BoundedProviderNames(Mutex<BTreeSet<Arc<str>>>);

impl Default for BoundedProviderNames {
    fn default() -> Self {
        Self(Mutex::new(BTreeSet::from(["azure".into()])))
    }
}

impl BoundedProviderNames {
    /// Returns the name if it is known, or if `is_real` and the limit is not reached; otherwise a
    /// placeholder. Upstream also leaves the label empty if no provider was found.
    pub(super) fn bounded_name(&self, name: Option<&str>, is_real: bool) -> BoundedProviderName {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return BoundedProviderName("".into());
        };
        let mut known = self.0.lock();
        if let Some(name) = known.get(name) {
            return BoundedProviderName(Arc::clone(name));
        }
        if name.parse::<ProviderName>().is_err() {
            return BoundedProviderName("invalid".into());
        }
        if !is_real || known.len() >= MAX_PROVIDER_NAMES {
            return BoundedProviderName("other".into());
        }
        let name: Arc<str> = name.into();
        known.insert(Arc::clone(&name));
        BoundedProviderName(name)
    }
}

const MAX_PROVIDER_NAMES: usize = 16;

/// Returns the name of a gRPC code in Go's spelling, which upstream's dashboards use.
pub(super) const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}
