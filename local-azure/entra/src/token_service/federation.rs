//! Workload identity federation: a token of another issuer authenticates a principal.
//!
//! `iss`, `sub` and `aud` must exactly match a federated credential, including their case.

use jiff::{SignedDuration, Timestamp};
use lanyard_emulator_core::issuer_keys::IssuerKeyError;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::public_documents::PublicDocuments;
use lanyard_emulator_state::azure_clouds::AzureClouds;
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::directory::FederatedCredential;
use lanyard_emulator_state::jose::{AssertionAlgorithm, UnverifiedToken};

use super::assertion::verify_lifetime;
use super::error::{
    ASSERTION_KEY, ENTRA_ISSUED, FEDERATED_LIFETIME, FEDERATED_SUBJECT_CASE, ISSUER_UNREACHABLE,
    MALFORMED_ASSERTION, NO_FEDERATED_AUDIENCE, NO_FEDERATED_CREDENTIAL, NO_FEDERATED_ISSUER,
    NO_FEDERATED_SUBJECT, TokenServiceError,
};

/// The longest lifetime of a token of another issuer.
const MAX_LIFETIME: SignedDuration = SignedDuration::from_hours(25);

/// Verifies a federated token against the federated credentials of a principal.
pub(super) fn verify_federated_token(
    call: &mut OperationContext<'_>,
    token: &UnverifiedToken,
    credentials: &[FederatedCredential],
) -> Result<(), TokenServiceError> {
    let issuer = token.text_claim("iss").unwrap_or_default();
    if is_entra_issuer(call.clouds, issuer) {
        return Err(ENTRA_ISSUED.with_description(
            "Tokens issued by Microsoft Entra ID may not be used for federated identity credential \
             flows to applications or managed identities registered in this tenant.",
        ));
    }
    find_matching_credential(token, issuer, credentials)?;
    if token.header.alg != "RS256" {
        return Err(
            MALFORMED_ASSERTION.with_description("A federated token must be signed with RS256.")
        );
    }
    let lifetime = i64::from(call.azure().tokens.issuer_key_cache_seconds);
    let (cache, kid) = (&mut call.caches.issuer_keys, token.header.kid.as_deref());
    let documents =
        PublicDocuments { azure: call.azure, clouds: call.clouds, services: call.services };
    let lifetime = SignedDuration::from_secs(lifetime);
    let key = cache
        .find_key(documents, issuer, kid, lifetime, call.now)
        .map_err(|problem| issuer_key_error(&problem, issuer))?;
    if !token.is_signed_by(AssertionAlgorithm::Rs256, &key) {
        return Err(ASSERTION_KEY.with_description(
            "The signature of the federated token is not that of its issuer's key.",
        ));
    }
    verify_lifetime(token, call.now)?;
    require_short_lifetime(token, call.now)
}

/// Rejects a token that is valid for more than 25 hours: `1.01:00:00` in the words of Entra.
fn require_short_lifetime(
    token: &UnverifiedToken,
    now: Timestamp,
) -> Result<(), TokenServiceError> {
    let Some(expires) = token.number_claim("exp") else { return Ok(()) };
    let issued = token.number_claim("iat").or_else(|| token.number_claim("nbf"));
    let issued = issued.unwrap_or_else(|| now.as_duration().as_secs_f64());
    if expires - issued <= MAX_LIFETIME.as_secs_f64() {
        return Ok(());
    }
    Err(FEDERATED_LIFETIME.with_description(format!(
        "External OIDC Provider token must have a lifetime of less than or equal to 1.01:00:00. Token \
         issued at {issued}. Token expires on {expires}."
    )))
}

fn issuer_key_error(problem: &IssuerKeyError, issuer: &str) -> TokenServiceError {
    match problem {
        IssuerKeyError::KeyMissing => ASSERTION_KEY.with_description(format!(
            "The key that signed the federated token is not in the key set of `{issuer}`."
        )),
        other => ISSUER_UNREACHABLE
            .with_description(format!("Request to external OIDC endpoint failed: {other}.")),
    }
}

/// Whether the issuer is Entra: its own tokens must not be exchanged again.
fn is_entra_issuer(clouds: &AzureClouds, issuer: &str) -> bool {
    let host = url::Url::parse(issuer).ok();
    let host = host.as_ref().and_then(url::Url::host_str).unwrap_or_default();
    host == "sts.chinacloudapi.cn"
        || host == "sts.microsoftonline.de"
        || clouds
            .endpoint_of_host(host)
            .is_some_and(|location| location.service == AzureService::Entra)
}

fn find_matching_credential<'a>(
    token: &UnverifiedToken,
    issuer: &str,
    credentials: &'a [FederatedCredential],
) -> Result<&'a FederatedCredential, TokenServiceError> {
    let subject = token.text_claim("sub").unwrap_or_default();
    let audiences = token.audiences();
    let presented = format!(
        "assertion issuer '{issuer}', subject '{subject}', audience '{}'",
        audiences.join(", ")
    );
    if credentials.is_empty() {
        return Err(NO_FEDERATED_CREDENTIAL.with_description(format!(
            "No matching federated identity record found for presented assertion: the principal \
             has none. Presented: {presented}."
        )));
    }
    let of_issuer: Vec<_> = credentials.iter().filter(|known| known.issuer == issuer).collect();
    if of_issuer.is_empty() {
        return Err(NO_FEDERATED_ISSUER.with_description(format!(
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
        return Err(code.with_description(format!(
            "No matching federated identity record found for presented assertion subject. \
             Presented: {presented}.{note}"
        )));
    }
    of_subject
        .into_iter()
        .find(|known| audiences.iter().any(|found| known.audiences.iter().any(|a| a == found)))
        .copied()
        .ok_or_else(|| {
            NO_FEDERATED_AUDIENCE.with_description(format!(
                "No matching federated identity record found for presented assertion audience. \
                 Presented: {presented}."
            ))
        })
}
