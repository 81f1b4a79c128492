//! The settings of Azure Resource Manager.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

use super::long_running_rule::LongRunningSettings;
use crate::keys::RedactedText;

/// Settings of Azure Resource Manager.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ArmSettings {
    /// The greatest number of items in a page of a list; unlimited without a value.
    pub page_size: Option<NonZeroUsize>,
    /// The namespaces that the subscriptions are not registered to use, in lower case.
    pub unregistered_namespaces: BTreeSet<String>,
    /// The kubeconfig of a local cluster, which the operations `listCluster…Credential` return.
    pub kubeconfig: Option<RedactedText>,
    /// The operations that complete after their reply.
    pub long_running: LongRunningSettings,
    /// The usage limits that differ from their defaults, in every region.
    pub quotas: Vec<QuotaLimit>,
}

/// A limit that differs from the default, in every region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaLimit {
    /// The name of the usage, such as `PublicIPAddresses` or `cores`.
    pub name: String,
    pub limit: u64,
}

/// The delays until changes of resources are known, in seconds of emulated time; zero by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ResourceDelays {
    /// Until `/resources` of a subscription or a resource group omits a deleted resource.
    pub deletion_seconds: u32,
}
