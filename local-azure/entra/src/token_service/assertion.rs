//! Verifies client assertions: client, audience, lifetime and signing key.

use jiff::Timestamp;
use lanyard_emulator_state::azure_clouds::EmulatedCloud;
use lanyard_emulator_state::certificates::{parse_certificate, sha1_thumbprint, sha256_thumbprint};
use lanyard_emulator_state::directory::{EntraDirectory, ServicePrincipal};
use lanyard_emulator_state::jose::{
    AssertionAlgorithm, UnverifiedToken, lenient_base64, x5c_certificate,
};
use lanyard_vocabulary::{EntraClientId, EntraTenantId};

use super::certificate_chain;
use super::error::{
    ASSERTION_AUDIENCE, ASSERTION_KEY, ASSERTION_LIFETIME, ASSERTION_NOT_OF_CLIENT,
    CERTIFICATE_VALIDITY, MALFORMED_ASSERTION, TokenServiceError,
};

/// The issuer host, which serves no tokens to clients: an assertion with a token endpoint there as its
/// audience is rejected.
const ISSUER_HOST: &str = "sts.windows.net";

/// The token endpoint of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct TokenEndpoint<'a> {
    pub(super) cloud: &'a EmulatedCloud,
    /// The host that the client addressed.
    pub(super) host: &'a str,
    /// The scheme, the host and the port that the client addressed.
    pub(super) origin: &'a str,
    /// The tenant as in the path.
    pub(super) tenant_in_path: &'a str,
    pub(super) tenant: &'a EntraTenantId,
    /// The v1 issuer of the tenant.
    pub(super) issuer: &'a str,
}

/// Verifies an assertion that the client signed with the key of a certificate.
///
/// The order of checks is Entra's: client, audience, lifetime, key, signature, certificate.
pub(super) fn verify_certificate_assertion(
    token: &UnverifiedToken,
    principal: &ServicePrincipal,
    directory: &EntraDirectory,
    endpoint: TokenEndpoint<'_>,
    now: Timestamp,
) -> Result<(), TokenServiceError> {
    let client = principal.client_id;
    for claim in ["iss", "sub"] {
        let named = token.text_claim(claim).and_then(|text| text.parse::<EntraClientId>().ok());
        if named != Some(client) {
            return Err(ASSERTION_NOT_OF_CLIENT.with_description(format!(
                "Client assertion application identifier doesn't match 'client_id' parameter: \
                 `{claim}` is not {client}."
            )));
        }
    }
    let accepted = endpoint.accepted_audiences();
    if !token.audiences().iter().any(|found| accepted.iter().any(|known| known == found)) {
        return Err(ASSERTION_AUDIENCE.with_description(format!(
            "Client assertion audience claim does not match Realm issuer. Accepted here: {}.",
            accepted.join(", ")
        )));
    }
    verify_lifetime(token, now)?;
    let algorithm = AssertionAlgorithm::parse(&token.header.alg).ok_or_else(|| {
        MALFORMED_ASSERTION
            .with_description("The client assertion must be signed with PS256 or RS256.")
    })?;
    let certificate = signing_certificate(token, principal, directory, now)?;
    let parsed = parse_certificate(&certificate).ok_or_else(|| {
        ASSERTION_KEY.with_description("The certificate of the assertion is not readable.")
    })?;
    let public_key = parsed.public_key().subject_public_key.data.as_ref();
    if !token.is_signed_by(algorithm, public_key) {
        return Err(assertion_key_error(
            "The key was found, but the signature of the assertion is not its own",
            &certificate,
        ));
    }
    if !certificate_chain::is_valid_at(&parsed, now) {
        return Err(CERTIFICATE_VALIDITY.with_description(format!(
            "The provided certificate is not within its specified validity window (from {} to {}).",
            parsed.validity().not_before,
            parsed.validity().not_after
        )));
    }
    Ok(())
}

/// Checks `nbf` and `exp`, with the clock skew that Entra tolerates.
pub(super) fn verify_lifetime(
    token: &UnverifiedToken,
    now: Timestamp,
) -> Result<(), TokenServiceError> {
    let ends = token
        .number_claim("exp")
        .ok_or_else(|| MALFORMED_ASSERTION.with_description("The assertion has no `exp` claim."))?;
    if token.is_valid_at(now) {
        return Ok(());
    }
    Err(ASSERTION_LIFETIME.with_description(format!(
        "Client assertion is not within its valid time range. Current time: {now}, `nbf`: {}, \
         `exp`: {ends}.",
        token.number_claim("nbf").map_or_else(|| "none".to_owned(), |nbf| nbf.to_string())
    )))
}

impl TokenEndpoint<'_> {
    /// The accepted audiences: the token endpoints and the issuers of this tenant.
    fn accepted_audiences(&self) -> Vec<String> {
        let mut origins = Vec::new();
        if self.host != ISSUER_HOST {
            origins.push(self.origin.to_owned());
        }
        // A regional endpoint is an alias of the global one.
        let global = self.cloud.global_authority_hosts(self.host);
        origins.extend(global.into_iter().map(|host| self.cloud.origin(host)));
        let tenants = [self.tenant.as_str(), self.tenant_in_path];
        let of = |origin: &str, tenant: &str| {
            let base = format!("{origin}/{tenant}");
            [
                format!("{base}/oauth2/v2.0/token"),
                format!("{base}/oauth2/token"),
                format!("{base}/v2.0"),
                format!("{base}/"),
            ]
        };
        let mut accepted: Vec<_> = origins
            .iter()
            .flat_map(|origin| tenants.iter().flat_map(move |tenant| of(origin, tenant)))
            .collect();
        accepted.push(self.issuer.to_owned());
        accepted.dedup();
        accepted
    }
}

/// The certificate whose key must have signed: a registered one, or one whose chain in the header leads to
/// the trusted subject and authority.
fn signing_certificate(
    token: &UnverifiedToken,
    principal: &ServicePrincipal,
    directory: &EntraDirectory,
    now: Timestamp,
) -> Result<Vec<u8>, TokenServiceError> {
    let header = &token.header;
    let sent: Vec<_> = header.x5c.iter().map(|entry| x5c_certificate(entry)).collect();
    let sent: Option<Vec<_>> = sent.into_iter().collect();
    let sent = sent.ok_or_else(|| {
        MALFORMED_ASSERTION.with_description("An entry of `x5c` is not a certificate in base64.")
    })?;
    let thumbprint = |text: &Option<String>| text.as_deref().and_then(lenient_base64);
    let (sha1, sha256) = (thumbprint(&header.x5t), thumbprint(&header.x5t_s256));
    let hex = header.kid.as_deref().and_then(|kid| hex::decode(kid).ok());
    let registered = directory.keys_of(principal).find(|credential| {
        let certificate = &credential.certificate;
        let first = Some(sha1_thumbprint(certificate));
        first == sha1
            || first == hex
            || Some(sha256_thumbprint(certificate)) == sha256
            || sent.first() == Some(certificate)
    });
    if let Some(credential) = registered {
        if credential.expires <= now {
            return Err(assertion_key_error("The key used is expired", &credential.certificate));
        }
        if credential.starts > now {
            let reason = "The key used is not yet valid";
            return Err(assertion_key_error(reason, &credential.certificate));
        }
        return Ok(credential.certificate.clone());
    }
    match (&principal.subject_name_issuer, sent.split_first()) {
        (Some(trust), Some((leaf, others))) => {
            let authority = directory.authorities.get(&trust.authority);
            let anchor = authority.map(|authority| authority.certificate.as_slice());
            certificate_chain::verify_chain(leaf, others, anchor, &trust.subject, now)
                .map_err(|problem| assertion_key_error(&problem.to_string(), leaf))?;
            Ok(leaf.clone())
        }
        (Some(_), None) => Err(ASSERTION_KEY.with_description(
            "The certificate used to sign the client assertion is not registered on the \
             application. [Reason - The key was not found.] This principal is trusted by subject \
             name and issuer: the assertion must carry its chain in `x5c`.",
        )),
        (None, _) => Err(ASSERTION_KEY.with_description(format!(
            "The certificate used to sign the client assertion is not registered on the \
             application. [Reason - The key was not found., Thumbprint of key used by client: '{}']",
            sha1.or(sha256).map(hex::encode_upper).unwrap_or_default()
        ))),
    }
}

fn assertion_key_error(reason: &str, certificate: &[u8]) -> TokenServiceError {
    ASSERTION_KEY.with_description(format!(
        "The certificate used to sign the client assertion is not accepted. [Reason - {reason}., \
         Thumbprint of key used by client: '{}']",
        hex::encode_upper(sha1_thumbprint(certificate))
    ))
}
