//! The gate before the Key Vault provider: judges what is asked for, and keeps the trail.

use std::sync::Arc;

use async_trait::async_trait;
use lanyard_api::{IdentityMode, ProviderParameters, VaultObjectEntry};
use lanyard_vocabulary::OutcomeCode;

use crate::audit::{AuditEvent, AuditTrail, AuditVerdict, ObjectRead, ReadRequester};
use crate::metrics::{NodeMetrics, PolicyDecision};
use crate::policy::access::{SharedIdentity, VaultAccess, VaultObjectName};
use crate::policy::{NodePolicy, PolicyVerdict, ReloadablePolicy};
use crate::provider::{Provider, ProviderError, ProviderRequest, ProviderResponse};

/// What becomes of a read that no rule allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PolicyMode {
    /// It is recorded, and read, as upstream does.
    #[default]
    Audit,
    /// It is recorded, and denied before anything is asked for.
    Enforce,
}

/// A Key Vault provider that a policy stands before, and an audit trail behind.
///
/// Everybody who is served by the provider goes through it: the node's own volumes, and the
/// callers of `azure.sock`. A volume is one unit: one object that no rule allows denies it all.
#[derive(Debug)]
pub struct PolicyCheckedProvider {
    inner: Arc<dyn Provider>,
    policy: Arc<ReloadablePolicy>,
    mode: PolicyMode,
    audit: AuditTrail,
    metrics: Option<NodeMetrics>,
}

impl PolicyCheckedProvider {
    /// Stands before `inner`.
    pub const fn new(
        inner: Arc<dyn Provider>,
        policy: Arc<ReloadablePolicy>,
        mode: PolicyMode,
        audit: AuditTrail,
    ) -> Self {
        Self { inner, policy, mode, audit, metrics: None }
    }

    /// The same, and what the policy says is counted.
    #[must_use]
    pub fn with_metrics(self, metrics: NodeMetrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    fn record_decisions(&self, asked: &PolicyCheck) {
        let unmatched = match self.mode {
            PolicyMode::Audit => PolicyDecision::Audited,
            PolicyMode::Enforce => PolicyDecision::Denied,
        };
        let Some(metrics) = &self.metrics else { return };
        for read in &asked.reads {
            match read.verdict {
                AuditVerdict::Allowed { .. } => {
                    metrics.record_policy_decision(PolicyDecision::Allowed)
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
        // Parameters that cannot be read name nothing that could be judged or read. The provider
        // says what is wrong with them. It reads them again, and cannot read them otherwise: the
        // seam carries the class, and not what one provider makes of it.
        let Ok(parameters) = request.class.parse_parameters() else {
            return self.inner.fetch(request).await;
        };
        let asked = PolicyCheck::new(request, &parameters, &self.policy.current());
        self.record_decisions(&asked);
        if self.mode == PolicyMode::Enforce && !asked.unmatched_reads().is_empty() {
            for read in asked.unmatched_reads() {
                if self.audit.record(AuditEvent::Denied(read.clone())) {
                    let said = format!("{} of {}", read.object, read.vault);
                    tracing::info!(pod = %request.pod, "no policy rule allows {said}: denied");
                }
            }
            return Err(asked.denial_error());
        }
        let filled = self.inner.fetch(request).await;
        match &filled {
            Ok(filling) => {
                for read in asked.served_reads(filling) {
                    let unmatched = read.verdict == AuditVerdict::Unmatched;
                    let said = format!("{} of {}", read.object, read.vault);
                    if self.audit.record(AuditEvent::Read(read)) && unmatched {
                        tracing::info!(pod = %request.pod, "no policy rule allows {said}");
                    }
                }
            }
            Err(refusal) => {
                let outcome = refusal.code.name();
                for read in &asked.reads {
                    let (read, outcome) = (read.clone(), outcome.to_owned());
                    self.audit.record(AuditEvent::Refused { read, outcome });
                }
            }
        }
        filled
    }
}

/// What a volume asks for, judged.
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
            let judgement = evaluate_access(policy, &by, parameters, &object);
            let read = object_read(&by, parameters, entry, judgement);
            if !reads.contains(&read) {
                reads.push(read);
            }
        }
        Self { reads }
    }

    fn unmatched_reads(&self) -> Vec<&ObjectRead> {
        self.reads.iter().filter(|read| read.verdict == AuditVerdict::Unmatched).collect()
    }

    /// Names everything that is missing at once.
    fn denial_error(&self) -> ProviderError {
        let unmatched = self.unmatched_reads();
        let objects: Vec<_> = unmatched.iter().map(|read| format!("`{}`", read.object)).collect();
        let Some(first) = unmatched.first() else {
            return ProviderError::new(OutcomeCode::PolicyDenied, "the policy denies it");
        };
        let identity = first.identity.as_deref().unwrap_or_default();
        ProviderError::new(
            OutcomeCode::PolicyDenied,
            format!(
                "no rule of the node's policy lets namespace `{}` with SecretProviderClass `{}` read \
                 {} of vault `{}` through the shared identity `{identity}`; the vault was not asked",
                first.by.namespace,
                first.by.class,
                objects.join(", "),
                first.vault,
            ),
        )
    }

    /// One read for each version that was given. A version of an object that was not asked for by
    /// its name is none of ours to explain, and is recorded all the same.
    fn served_reads(&self, filling: &ProviderResponse) -> Vec<ObjectRead> {
        let stale = filling.stale.is_some();
        let of = |id: &str| {
            let object = VaultObjectName::parse(id)?.to_string();
            let known = self.reads.iter().find(|read| read.object.eq_ignore_ascii_case(&object))?;
            Some(known.clone())
        };
        let versions = filling.versions.iter();
        versions
            .filter_map(|given| {
                let read = of(&given.id).or_else(|| {
                    tracing::error!(id = given.id, "a version was given that nobody asked for");
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
    judgement: AuditVerdict,
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
        verdict: judgement,
    }
}

/// The name of the mode, and the identity as the trail writes it.
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
