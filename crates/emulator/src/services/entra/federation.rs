//! Workload identity federation: a token of another issuer stands for a principal.
//!
//! `iss`, `sub` and `aud` must be those of a federated credential, exactly and with their case.
//! What the issuer's discovery document and key set would say, the world knows: no request leaves
//! the process.

use jiff::Timestamp;

use super::assertion::verify_lifetime;
use super::refusal::{
    ASSERTION_KEY, ENTRA_ISSUED, FEDERATED_SUBJECT_CASE, ISSUER_UNREACHABLE, MALFORMED_ASSERTION,
    NO_FEDERATED_AUDIENCE, NO_FEDERATED_CREDENTIAL, NO_FEDERATED_ISSUER, NO_FEDERATED_SUBJECT,
    Refusal,
};
use crate::directory::{Directory, FederatedCredential};
use crate::hosts;
use crate::jose::{Algorithm, Token};
use crate::operations::Service;

/// Verifies a foreign token against the federated credentials of a principal.
pub(super) fn verify_foreign_token(
    token: &Token,
    credentials: &[FederatedCredential],
    directory: &Directory,
    now: Timestamp,
) -> Result<(), Refusal> {
    let issuer = token.text("iss").unwrap_or_default();
    if is_entra(issuer) {
        return Err(ENTRA_ISSUED.because(
            "Tokens issued by Microsoft Entra ID may not be used for federated identity credential \
             flows to applications or managed identities registered in this tenant.",
        ));
    }
    matching(token, issuer, credentials)?;
    let trusted = directory.issuers.get(issuer).ok_or_else(|| {
        ISSUER_UNREACHABLE.because(format!(
            "Request to external OIDC endpoint failed: this world has no keys of the issuer \
             `{issuer}`."
        ))
    })?;
    if token.header.alg != "RS256" {
        return Err(MALFORMED_ASSERTION.because("A federated token must be signed with RS256."));
    }
    let key = trusted.public_der(token.header.kid.as_deref()).ok_or_else(|| {
        ASSERTION_KEY.because(format!(
            "The key that signed the federated token is not in the key set of `{issuer}`."
        ))
    })?;
    if !token.is_signed_by(Algorithm::Rs256, &key) {
        return Err(ASSERTION_KEY
            .because("The signature of the federated token is not that of its issuer's key."));
    }
    verify_lifetime(token, now)
}

/// Entra's own tokens could otherwise be exchanged in circles.
fn is_entra(issuer: &str) -> bool {
    let host = url::Url::parse(issuer).ok();
    let host = host.as_ref().and_then(url::Url::host_str).unwrap_or_default();
    host == "sts.chinacloudapi.cn"
        || host == "sts.microsoftonline.de"
        || hosts::site(host).is_some_and(|site| site.service == Service::Entra)
}

fn matching<'a>(
    token: &Token,
    issuer: &str,
    credentials: &'a [FederatedCredential],
) -> Result<&'a FederatedCredential, Refusal> {
    let subject = token.text("sub").unwrap_or_default();
    let audiences = token.audiences();
    let presented = format!(
        "assertion issuer '{issuer}', subject '{subject}', audience '{}'",
        audiences.join(", ")
    );
    if credentials.is_empty() {
        return Err(NO_FEDERATED_CREDENTIAL.because(format!(
            "No matching federated identity record found for presented assertion: the principal \
             has none. Presented: {presented}."
        )));
    }
    let of_issuer: Vec<_> = credentials.iter().filter(|known| known.issuer == issuer).collect();
    if of_issuer.is_empty() {
        return Err(NO_FEDERATED_ISSUER.because(format!(
            "No matching federated identity record found for presented assertion issuer. \
             Presented: {presented}."
        )));
    }
    let of_subject: Vec<_> = of_issuer.iter().filter(|known| known.subject == subject).collect();
    if of_subject.is_empty() {
        let by_case = of_issuer.iter().any(|known| known.subject.eq_ignore_ascii_case(subject));
        let (code, note) = if by_case {
            (FEDERATED_SUBJECT_CASE, " One differs only in case, and matching is case-sensitive.")
        } else {
            (NO_FEDERATED_SUBJECT, "")
        };
        return Err(code.because(format!(
            "No matching federated identity record found for presented assertion subject. \
             Presented: {presented}.{note}"
        )));
    }
    of_subject
        .into_iter()
        .find(|known| audiences.iter().any(|found| known.audiences.iter().any(|a| a == found)))
        .copied()
        .ok_or_else(|| {
            NO_FEDERATED_AUDIENCE.because(format!(
                "No matching federated identity record found for presented assertion audience. \
                 Presented: {presented}."
            ))
        })
}
