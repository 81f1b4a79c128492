//! A provider that checks the policy before each fetch and writes the audit trail.

use std::sync::Arc;

use async_trait::async_trait;
use lanyard_api::{IdentityMode, ProviderParameters, VaultObjectEntry};
use lanyard_provider::{Provider, ProviderError, ProviderRequest, ProviderResponse};
use lanyard_vocabulary::OutcomeCode;

use crate::audit::{AuditEvent, AuditTrail, AuditVerdict, ObjectRead, ReadRequester};
use crate::metrics::{NodeMetrics, PolicyDecision};
use crate::policy::access::{SharedIdentity, VaultAccess, VaultObjectName};
use crate::policy::{NodePolicy, PolicyVerdict, ReloadablePolicy};

/// The treatment of a read that no rule allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PolicyMode {
    /// Records the read and allows it, as upstream does.
    #[default]
    Audit,
    /// Records the read and denies it before any request.
    Enforce,
}

/// Checks the node policy before a Key Vault provider, and records each read in the audit trail.
///
/// Every caller of the provider goes through it: the node's own volumes and the callers of `azure.sock`. A
/// volume is one unit: a single object that no rule allows denies the whole volume.
#[derive(Debug)]
pub struct PolicyCheckedProvider {
    inner: Arc<dyn Provider>,
    policy: Arc<ReloadablePolicy>,
    mode: PolicyMode,
    audit: AuditTrail,
    metrics: Option<NodeMetrics>,
}

impl PolicyCheckedProvider {
    /// Wraps `inner`.
    pub const fn new(
        inner: Arc<dyn Provider>,
        policy: Arc<ReloadablePolicy>,
        mode: PolicyMode,
        audit: AuditTrail,
    ) -> Self {
        Self { inner, policy, mode, audit, metrics: None }
    }

    /// Counts the decisions of the policy.
    #[must_use]
    pub fn with_metrics(self, metrics: NodeMetrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    fn record_decisions(&self, check: &PolicyCheck) {
        let unmatched = match self.mode {
            PolicyMode::Audit => PolicyDecision::Audited,
            PolicyMode::Enforce => PolicyDecision::Denied,
        };
        let Some(metrics) = &self.metrics else { return };
        for read in &check.reads {
            match read.verdict {
                AuditVerdict::Allowed { .. } => {
                    metrics.record_policy_decision(PolicyDecision::Allowed);
                }
                AuditVerdict::Unmatched => metrics.record_policy_decision(unmatched),
                AuditVerdict::Azure => {}
            }
        }
    }
}

#[async_trait]
impl Provider for PolicyCheckedProvider {
    async fn fetch(
        &self,
        request: &ProviderRequest<'_>,
    ) -> Result<ProviderResponse, ProviderError> {
        // Invalid parameters name no objects that could be checked or read. The provider parses the class
        // again and returns the error; it cannot get another result from the same class.
        let Ok(parameters) = request.class.parse_parameters() else {
            return self.inner.fetch(request).await;
        };
        let check = PolicyCheck::new(request, &parameters, &self.policy.current());
        self.record_decisions(&check);
        if self.mode == PolicyMode::Enforce && !check.unmatched_reads().is_empty() {
            for read in check.unmatched_reads() {
                if self.audit.record(AuditEvent::Denied(read.clone())) {
                    let read_text = format!("{} of {}", read.object, read.vault);
                    tracing::info!(pod = %request.pod, "no policy rule allows {read_text}: denied");
                }
            }
            return Err(check.denial_error());
        }
        let filled = self.inner.fetch(request).await;
        match &filled {
            Ok(response) => {
                for read in check.served_reads(response) {
                    let unmatched = read.verdict == AuditVerdict::Unmatched;
                    let read_text = format!("{} of {}", read.object, read.vault);
                    if self.audit.record(AuditEvent::Read(read)) && unmatched {
                        tracing::info!(pod = %request.pod, "no policy rule allows {read_text}");
                    }
                }
            }
            Err(error) => {
                let outcome = error.code.name();
                for read in &check.reads {
                    let (read, outcome) = (read.clone(), outcome.to_owned());
                    self.audit.record(AuditEvent::Refused { read, outcome });
                }
            }
        }
        filled
    }
}

/// The objects of a request, with the verdict of the policy on each.
struct PolicyCheck {
    reads: Vec<ObjectRead>,
}

impl PolicyCheck {
    fn new(
        request: &ProviderRequest<'_>,
        parameters: &ProviderParameters,
        policy: &NodePolicy,
    ) -> Self {
        let class = request.class.metadata.name.as_deref().unwrap_or_default();
        let by = ReadRequester::new(request.pod, class);
        let mut reads: Vec<ObjectRead> = Vec::new();
        for entry in &parameters.objects {
            let object = VaultObjectName { kind: entry.kind, name: entry.name.clone() };
            let decision = evaluate_access(policy, &by, parameters, &object);
            let read = object_read(&by, parameters, entry, decision);
            if !reads.contains(&read) {
                reads.push(read);
            }
        }
        Self { reads }
    }

    fn unmatched_reads(&self) -> Vec<&ObjectRead> {
        self.reads.iter().filter(|read| read.verdict == AuditVerdict::Unmatched).collect()
    }

    /// Returns an error that names every denied object.
    fn denial_error(&self) -> ProviderError {
        let unmatched = self.unmatched_reads();
        let objects: Vec<_> = unmatched.iter().map(|read| format!("`{}`", read.object)).collect();
        let Some(first) = unmatched.first() else {
            return ProviderError::new(
                OutcomeCode::PolicyDenied,
                "the node's policy denies the read",
            );
        };
        let identity = first.identity.as_deref().unwrap_or_default();
        ProviderError::new(
            OutcomeCode::PolicyDenied,
            format!(
                "no rule of the node's policy lets namespace `{}` with SecretProviderClass `{}` read \
                 {} of vault `{}` through the shared identity `{identity}`; no request was sent to the vault",
                first.by.namespace,
                first.by.class,
                objects.join(", "),
                first.vault,
            ),
        )
    }

    /// Returns one read for each returned version. A version of an object that was not requested by name is
    /// recorded as well.
    fn served_reads(&self, response: &ProviderResponse) -> Vec<ObjectRead> {
        let stale = response.stale.is_some();
        let of = |id: &str| {
            let object = VaultObjectName::parse(id)?.to_string();
            let known = self.reads.iter().find(|read| read.object.eq_ignore_ascii_case(&object))?;
            Some(known.clone())
        };
        let versions = response.versions.iter();
        versions
            .filter_map(|given| {
                let read = of(&given.id).or_else(|| {
                    tracing::error!(
                        id = given.id,
                        "the provider returned a version that was not requested"
                    );
                    let first = self.reads.first()?.clone();
                    Some(ObjectRead { object: given.id.clone(), ..first })
                })?;
                Some(ObjectRead { version: Some(given.version.clone()), stale, ..read })
            })
            .collect()
    }
}

fn evaluate_access(
    policy: &NodePolicy,
    by: &ReadRequester,
    parameters: &ProviderParameters,
    object: &VaultObjectName,
) -> AuditVerdict {
    let Some(identity) = SharedIdentity::of(&parameters.identity) else {
        return AuditVerdict::Azure;
    };
    let access = VaultAccess {
        namespace: by.namespace.clone(),
        class: by.class.clone(),
        identity,
        vault: parameters.vault_name.clone(),
        object: object.clone(),
    };
    match policy.evaluate(&access) {
        PolicyVerdict::Allowed { rule } => AuditVerdict::Allowed { rule: rule.to_owned() },
        PolicyVerdict::Unmatched => AuditVerdict::Unmatched,
    }
}

fn object_read(
    by: &ReadRequester,
    parameters: &ProviderParameters,
    entry: &VaultObjectEntry,
    decision: AuditVerdict,
) -> ObjectRead {
    let (mode, identity) = describe_identity(&parameters.identity);
    ObjectRead {
        by: by.clone(),
        identity_mode: mode.to_owned(),
        identity,
        vault: parameters.vault_name.to_string(),
        object: VaultObjectName { kind: entry.kind, name: entry.name.clone() }.to_string(),
        version: entry.version.as_ref().map(ToString::to_string),
        stale: false,
        verdict: decision,
    }
}

/// Returns the name of the mode, and the identity as the audit trail writes it.
fn describe_identity(mode: &IdentityMode) -> (&'static str, Option<String>) {
    match mode {
        IdentityMode::ManagedIdentity { .. } => {
            ("managed-identity", SharedIdentity::of(mode).map(|identity| identity.to_string()))
        }
        IdentityMode::WorkloadIdentity { client_id } => {
            ("workload-identity", Some(client_id.to_string()))
        }
        IdentityMode::IdentityBinding { client_id } => {
            ("identity-binding", Some(client_id.to_string()))
        }
        IdentityMode::ServicePrincipal => ("service-principal", None),
        IdentityMode::PodIdentity => ("pod-identity", None),
    }
}
