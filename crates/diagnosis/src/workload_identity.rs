//! Judges each hop of a workload identity.

use std::fmt;

use jiff::Timestamp;
use lanyard_vocabulary::Hop;
use serde::Serialize;

use crate::check_outcome::CheckOutcome;
use crate::claim_comparison::{FederatedCredential, differing_form};
use crate::entra_codes::{hop_of_code, rejection_cause};
use crate::evidence::{Evidence, WorkloadIdentityEvidence};
use crate::foreign_text::{quoted, quoted_list};
use crate::token_claims::TokenClaims;

/// The verdict on a workload identity. The display form is text for people.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadIdentityDiagnosis {
    /// The claims of the token, if they were read.
    pub token: Option<TokenClaims>,
    /// The verdicts on the hops of [`Hop::WORKLOAD_IDENTITY_PATH`], in order.
    pub hops: Vec<HopVerdict>,
    /// The first broken hop, whose repair comes first; `None` if no hop that was checked is broken.
    pub first_broken_hop: Option<Hop>,
}

/// The verdict on one hop.
#[derive(Debug, Clone, Serialize)]
pub struct HopVerdict {
    /// The hop.
    pub hop: Hop,
    /// Whether the hop works, and how to repair it.
    #[serde(flatten)]
    pub outcome: CheckOutcome,
    /// Where the evidence of this hop was read, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// Judges the hops of a workload identity as of `now`.
pub fn diagnose(evidence: &WorkloadIdentityEvidence, now: Timestamp) -> WorkloadIdentityDiagnosis {
    let rejection = match evidence.exchange {
        CheckOutcome::Failed { code: Some(code), .. } => Some((code, hop_of_code(code))),
        _ => None,
    };
    let claims = evidence.token.as_ref().and_then(|token| token.value.as_ref().ok());
    let evaluation = HopEvaluation { evidence, claims, rejection, now };
    let hops = Hop::WORKLOAD_IDENTITY_PATH.map(|hop| HopVerdict {
        hop,
        outcome: evaluation.judge(hop),
        source: evidence.source(hop).map(str::to_owned),
    });
    WorkloadIdentityDiagnosis {
        token: claims.cloned(),
        first_broken_hop: hops.iter().find(|it| it.outcome.is_failed()).map(|it| it.hop),
        hops: hops.into(),
    }
}

/// The evidence, with what several hops need of it.
struct HopEvaluation<'a> {
    evidence: &'a WorkloadIdentityEvidence,
    claims: Option<&'a TokenClaims>,
    /// The code with which Entra ID rejected the exchange, and the hop to which the code points.
    rejection: Option<(u32, Hop)>,
    now: Timestamp,
}

impl HopEvaluation<'_> {
    fn judge(&self, hop: Hop) -> CheckOutcome {
        match (hop, self.claims) {
            (Hop::ServiceAccount, _) => self.judge_service_account(),
            (Hop::Granted, _) => self.evidence.role.clone(),
            (Hop::EntraToken, _) => self.judge_exchange(),
            // A successful exchange proves the token, the issuer and the federated credential.
            _ if matches!(self.evidence.exchange, CheckOutcome::Good { .. }) => {
                CheckOutcome::good("Entra ID accepts the token")
            }
            (Hop::ProjectedToken, _) => self.judge_token(),
            (_, None) => CheckOutcome::not_decided("the token was not read"),
            (Hop::Issuer, Some(claims)) => self.judge_issuer(claims),
            (_, Some(claims)) => self.judge_federated_credential(claims),
        }
    }

    fn judge_service_account(&self) -> CheckOutcome {
        let Some(Evidence { value: account, .. }) = &self.evidence.service_account else {
            return CheckOutcome::not_decided("the annotations were not read");
        };
        let used = self.evidence.client_id.as_deref();
        let annotated = account.client_id.as_deref().filter(|id| !id.is_empty());
        let cause = match annotated {
            None => {
                "it has no annotation azure.workload.identity/client-id, so the webhook sets no \
                     AZURE_CLIENT_ID"
                    .to_owned()
            }
            Some(id) if used.is_some_and(|used| !used.eq_ignore_ascii_case(id)) => {
                let (id, used) = (quoted(id), quoted(used.unwrap_or_default()));
                format!(
                    "its annotation azure.workload.identity/client-id is {id}, and the exchange uses {used}"
                )
            }
            Some(_) if account.tenant_id.as_deref() == Some("") => {
                "its annotation azure.workload.identity/tenant-id is empty, so the webhook sets no \
                 AZURE_TENANT_ID"
                    .to_owned()
            }
            Some(id) => {
                return CheckOutcome::good(format!("{} is for {}", account.subject(), quoted(id)));
            }
        };
        let next_step =
            "annotate the ServiceAccount with the ids of the identity, then create the pod again";
        CheckOutcome::failed(cause, next_step)
    }

    fn judge_token(&self) -> CheckOutcome {
        let claims = match self.evidence.token.as_ref().map(|token| &token.value) {
            None => return CheckOutcome::not_decided("the token was not read"),
            Some(Ok(claims)) => claims,
            Some(Err(problem)) => {
                return CheckOutcome::failed(
                    format!("this is no ServiceAccount token: {problem}"),
                    "use the content of the file that AZURE_FEDERATED_TOKEN_FILE names in the pod, and nothing else",
                );
            }
        };
        if let Some(end) = claims.expires_at.filter(|end| *end <= self.now) {
            let ago = self.now.duration_since(end).as_secs();
            return CheckOutcome::failed(
                format!("the token expired at {end}, {ago} seconds ago"),
                "read the file again: the kubelet replaces the token after 80 % of its lifetime; if the token in the \
                 pod is old too, read the events of the pod",
            );
        }
        let account = self.evidence.service_account.as_ref().map(|it| it.value.subject());
        if let Some(subject) = account.filter(|subject| *subject != claims.subject) {
            let (found, subject) = (quoted(&claims.subject), quoted(&subject));
            return CheckOutcome::failed(
                format!("the token's subject is {found}, not {subject}"),
                "compare `serviceAccountName` of the pod with the ServiceAccount of the identity",
            );
        }
        if let Some(outcome) = self.rejection_at(Hop::ProjectedToken, claims) {
            return outcome;
        }
        let is_compared = self.rejection.is_some() || self.evidence.federated_credentials.is_some();
        if !is_compared && !claims.audiences.iter().any(|it| AUDIENCES.contains(&&**it)) {
            let found = quoted_list(&claims.audiences);
            return CheckOutcome::failed(
                format!("the token's audience is {found}, not `{}`", AUDIENCES[0]),
                "project a token with the audience of the federated credential; the default token of a pod is only for \
                 the Kubernetes API",
            );
        }
        CheckOutcome::good(claims.to_string())
    }

    fn judge_issuer(&self, claims: &TokenClaims) -> CheckOutcome {
        let issuer = quoted(&claims.issuer);
        if !claims.issuer.starts_with("https://") {
            return CheckOutcome::failed(
                format!("{issuer} is no https URL, so Entra ID cannot read its documents"),
                "set --service-account-issuer of the API server to the URL at which the documents are published",
            );
        }
        let Some(key_id) = &claims.key_id else {
            return CheckOutcome::failed(
                "the header of the token has no key id (`kid`), by which Entra ID finds the key",
                "use a token that the API server of the cluster signs",
            );
        };
        let key = quoted(key_id);
        match self.evidence.issuer.as_ref().map(|documents| &documents.value) {
            Some(Err(reason)) => CheckOutcome::failed(
                format!("the documents of {issuer} cannot be read: {reason}"),
                "publish <issuer>/.well-known/openid-configuration for readers without a sign-in",
            ),
            Some(Ok(documents)) if documents.issuer != claims.issuer => {
                let how = differing_form(&claims.issuer, &documents.issuer).unwrap_or("as a whole");
                let published = quoted(&documents.issuer);
                CheckOutcome::failed(
                    format!(
                        "the issuer differs {how}: the token has {issuer}, the discovery document has {published}"
                    ),
                    "publish the discovery document with the issuer of the tokens, letter by letter",
                )
            }
            Some(Ok(documents)) if !documents.key_ids.contains(key_id) => CheckOutcome::failed(
                format!("{issuer} publishes {}, not {key}", quoted_list(&documents.key_ids)),
                "publish the key that signs the tokens beside the others",
            ),
            read => self.rejection_at(Hop::Issuer, claims).unwrap_or_else(|| match read {
                Some(_) => CheckOutcome::good(format!("{issuer} publishes the key {key}")),
                None => CheckOutcome::not_decided("the documents of the issuer were not read"),
            }),
        }
    }

    fn judge_federated_credential(&self, claims: &TokenClaims) -> CheckOutcome {
        let Some(Evidence { value: list, .. }) = &self.evidence.federated_credentials else {
            let rejection = self.rejection_at(Hop::FederatedCredential, claims);
            return rejection.unwrap_or_else(|| {
                CheckOutcome::not_decided(format!("compare the token with {LIST_COMMAND}"))
            });
        };
        match FederatedCredential::nearest(list, claims) {
            None => CheckOutcome::failed(
                "the identity has no federated credential",
                format!("create one for {claims}"),
            ),
            Some((nearest, differences)) if differences.is_empty() => {
                CheckOutcome::good(format!("{} matches the token", quoted(&nearest.name)))
            }
            Some((nearest, differences)) => CheckOutcome::failed(
                differences.join("; "),
                format!(
                    "correct the federated credential {}, or create one for the token; a change takes some minutes to work",
                    quoted(&nearest.name)
                ),
            ),
        }
    }

    /// The exchange itself. If another hop causes its failure, its next step is that of the other hop.
    fn judge_exchange(&self) -> CheckOutcome {
        let outcome = self.evidence.exchange.clone();
        let (CheckOutcome::Failed { detail, .. }, Some((_, cause))) = (&outcome, self.rejection)
        else {
            return outcome;
        };
        match cause {
            Hop::EntraToken => outcome,
            _ if self.judge(cause).is_failed() => {
                CheckOutcome::failed(detail, format!("repair the hop `{cause}`"))
            }
            _ => CheckOutcome::failed(
                detail,
                "wait some minutes if the federated credential is new; otherwise check that the list is that of the \
                 identity with this client id in this tenant",
            ),
        }
    }

    /// The verdict on a hop to which the rejection points.
    fn rejection_at(&self, hop: Hop, claims: &TokenClaims) -> Option<CheckOutcome> {
        let (code, _) = self.rejection.filter(|(_, cause)| *cause == hop)?;
        let CheckOutcome::Failed { next_step, .. } = &self.evidence.exchange else { return None };
        let compare = match hop {
            Hop::FederatedCredential => format!("; compare the token with {LIST_COMMAND}"),
            _ => String::new(),
        };
        Some(CheckOutcome::failed(rejection_cause(code, claims), format!("{next_step}{compare}")))
    }
}

impl WorkloadIdentityDiagnosis {
    fn is_exchanged(&self) -> bool {
        let is_good = |it: &HopVerdict| matches!(it.outcome, CheckOutcome::Good { .. });
        self.hops.iter().any(|it| it.hop == Hop::EntraToken && is_good(it))
    }
}

impl fmt::Display for WorkloadIdentityDiagnosis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for HopVerdict { hop, outcome, .. } in &self.hops {
            writeln!(formatter, "{}", outcome.to_text(hop.name(), 22))?;
        }
        match self.first_broken_hop {
            Some(hop) => write!(formatter, "not good: the first broken hop is `{hop}`"),
            None if self.is_exchanged() => formatter.write_str("good: no hop is broken"),
            None => formatter.write_str("no broken hop found; the exchange was not checked"),
        }
    }
}

/// The audiences of tokens for Entra ID, the default first: that of workload identity, and that of the components of
/// OpenShift.
const AUDIENCES: [&str; 2] = ["api://AzureADTokenExchange", "openshift"];
const LIST_COMMAND: &str =
    "`az identity federated-credential list --identity-name NAME --resource-group GROUP`";

#[cfg(test)]
mod tests;
