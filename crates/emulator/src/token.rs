//! Access tokens: issued by the emulated Entra, verified by the other services.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use lanyard_vocabulary::{ArmResourceId, Cloud, EntraClientId, EntraTenantId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::azure_state::AzureState;
use crate::directory::{ServicePrincipal, Tenant, User};
use crate::jose::{self, AssertionAlgorithm, UnverifiedToken};
use crate::keys::{RedactedText, RsaKeyError};
use crate::operation_context::IdGenerator;

/// The lifetimes of access tokens. The defaults are those of Azure: one hour for applications, one day for
/// managed identities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TokenPolicy {
    /// The lifetime of an application's token, in seconds.
    pub application_seconds: u32,
    /// The lifetime of a managed identity's token, in seconds; above two hours, the response has a
    /// `refresh_in` of half of it.
    pub managed_identity_seconds: u32,
}

impl Default for TokenPolicy {
    fn default() -> Self {
        Self { application_seconds: 3_599, managed_identity_seconds: 86_399 }
    }
}

/// Tokens with a longer lifetime have a `refresh_in` of half their lifetime.
const LONG_LIFE_SECONDS: u32 = 7_200;
/// The clock skew that Azure's services tolerate, in seconds.
pub(crate) const SKEW_SECONDS: i64 = 300;

/// The caller of a request, from a verified token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthenticatedCaller {
    /// The object id of the principal, which role assignments refer to.
    pub(crate) object_id: Uuid,
    /// The application id.
    pub(crate) app_id: EntraClientId,
    /// The tenant that issued the token.
    pub(crate) tenant: EntraTenantId,
    /// The Azure resource of a managed identity.
    pub(crate) resource_id: Option<ArmResourceId>,
    /// The principal name of the user who signed in; `None` for a token of an application itself.
    pub(crate) user: Option<String>,
    /// The audience of the token.
    pub(crate) audience: String,
}

/// The reason why a bearer token was rejected. Each service has its own message for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BearerTokenError {
    /// The request has no token.
    #[error("no bearer token was sent")]
    Missing,
    /// The token is not a JSON Web Token.
    #[error("the bearer token is not a JSON Web Token")]
    Malformed,
    /// The token was not signed by an emulated tenant.
    #[error("the bearer token was not issued here")]
    NotIssuedHere,
    /// The token is for another resource.
    #[error("the audience of the token is `{found}`")]
    Audience {
        /// The audience of the token.
        found: String,
    },
    /// The token has expired, or is not valid yet.
    #[error("the token is outside its lifetime")]
    Lifetime,
}

/// Verifies the token of an `Authorization` header for one of `audiences`, compared exactly.
pub(crate) fn verify_bearer(
    azure: &AzureState,
    authorization: Option<&str>,
    audiences: &[impl AsRef<str>],
    now: Timestamp,
) -> Result<AuthenticatedCaller, BearerTokenError> {
    let (scheme, text) =
        authorization.and_then(|header| header.split_once(' ')).ok_or(BearerTokenError::Missing)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(BearerTokenError::Missing);
    }
    let token = UnverifiedToken::parse(text.trim()).ok_or(BearerTokenError::Malformed)?;
    let key_id = token.header.kid.as_deref().unwrap_or_default();
    let tenant = azure
        .directory
        .tenants
        .iter()
        .find(|tenant| tenant.key_id == key_id)
        .ok_or(BearerTokenError::NotIssuedHere)?;
    let public = tenant.key.public_der().map_err(|_unreadable| BearerTokenError::NotIssuedHere)?;
    // The issuer determines the algorithm, never the token.
    if token.header.alg != "RS256" || !token.is_signed_by(AssertionAlgorithm::Rs256, &public) {
        return Err(BearerTokenError::NotIssuedHere);
    }
    caller_from_claims(&token, tenant, audiences, now)
}

fn caller_from_claims(
    token: &UnverifiedToken,
    tenant: &Tenant,
    audiences: &[impl AsRef<str>],
    now: Timestamp,
) -> Result<AuthenticatedCaller, BearerTokenError> {
    let whole = |claim| token.claims.get(claim).and_then(Value::as_i64);
    let (Some(begins), Some(ends)) = (whole("nbf"), whole("exp")) else {
        return Err(BearerTokenError::Malformed);
    };
    let second = now.as_second();
    if second >= ends || second < begins - SKEW_SECONDS {
        return Err(BearerTokenError::Lifetime);
    }
    let audience = token.text_claim("aud").ok_or(BearerTokenError::Malformed)?;
    if !audiences.iter().any(|accepted| accepted.as_ref() == audience) {
        return Err(BearerTokenError::Audience { found: audience.to_owned() });
    }
    let object_id = token.text_claim("oid").and_then(|text| text.parse().ok());
    let app_id = token.text_claim("appid").and_then(|text| text.parse().ok());
    Ok(AuthenticatedCaller {
        object_id: object_id.ok_or(BearerTokenError::Malformed)?,
        app_id: app_id.ok_or(BearerTokenError::Malformed)?,
        tenant: tenant.id.clone(),
        resource_id: token.text_claim("xms_mirid").and_then(|text| text.parse().ok()),
        user: token.text_claim("upn").map(ToOwned::to_owned),
        audience: audience.to_owned(),
    })
}

/// The authentication method of a client: `appidacr` of its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientAuthMethod {
    /// None: a public client, in which a user signs in.
    Public,
    /// A client secret.
    Secret,
    /// A certificate, a federated token, or the machine's managed identity.
    KeyOrToken,
}

impl ClientAuthMethod {
    /// The value of `appidacr`.
    const fn claim(self) -> &'static str {
        match self {
            Self::Public => "0",
            Self::Secret => "1",
            Self::KeyOrToken => "2",
        }
    }
}

/// The subject of an access token.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TokenSubject<'a> {
    /// An application or managed identity that acts as itself.
    ServicePrincipal(&'a ServicePrincipal),
    /// A user who signed in with a client application.
    User {
        user: &'a User,
        client: EntraClientId,
        /// The delegated permissions, separated by spaces: `scp`.
        scopes: &'a str,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenGrant<'a> {
    pub(crate) subject: TokenSubject<'a>,
    /// The resource exactly as requested: it becomes `aud`, including slashes.
    pub(crate) resource: &'a str,
    /// How the principal authenticated.
    pub(crate) auth_method: ClientAuthMethod,
    /// The cloud of the token service.
    pub(crate) cloud: Cloud,
}

#[derive(Debug)]
pub(crate) struct IssuedAccessToken {
    pub(crate) token: RedactedText,
    /// The start of the validity, in seconds of Unix time.
    pub(crate) not_before: i64,
    /// The lifetime, in seconds.
    pub(crate) expires_in: u32,
    /// When to refresh the token, in seconds, for tokens with a long lifetime.
    pub(crate) refresh_in: Option<u32>,
}

impl IssuedAccessToken {
    /// The expiry, in seconds of Unix time.
    pub(crate) fn expires_on(&self) -> i64 {
        self.not_before + i64::from(self.expires_in)
    }
}

/// The issuer of version 1.0 tokens, which both endpoints issue for ARM and the vaults.
pub(crate) fn v1_issuer(cloud: Cloud, tenant: &EntraTenantId) -> String {
    let host = match cloud {
        Cloud::China => "sts.chinacloudapi.cn",
        Cloud::German => "sts.microsoftonline.de",
        _ => "sts.windows.net",
    };
    format!("https://{host}/{tenant}/")
}

/// Issues a token in the form of version 1.0.
pub(crate) fn issue_access_token(
    policy: TokenPolicy,
    tenant: &Tenant,
    grant: TokenGrant<'_>,
    now: Timestamp,
    ids: &mut IdGenerator,
) -> Result<IssuedAccessToken, RsaKeyError> {
    let managed_identity = match grant.subject {
        TokenSubject::ServicePrincipal(principal) => principal.resource_id(),
        TokenSubject::User { .. } => None,
    };
    let expires_in = if managed_identity.is_some() {
        policy.managed_identity_seconds
    } else {
        policy.application_seconds
    };
    let not_before = now.as_second();
    let issuer = v1_issuer(grant.cloud, &tenant.id);
    let mut claims = Map::new();
    let mut claim = |name: &str, value: Value| {
        claims.insert(name.to_owned(), value);
    };
    claim("aud", json!(grant.resource));
    claim("iss", json!(issuer));
    claim("idp", json!(issuer));
    for name in ["iat", "nbf"] {
        claim(name, json!(not_before));
    }
    claim("exp", json!(not_before + i64::from(expires_in)));
    claim("tid", json!(tenant.id));
    claim("appidacr", json!(grant.auth_method.claim()));
    add_subject_claims(&mut claim, grant.subject);
    claim("uti", json!(URL_SAFE_NO_PAD.encode(ids.next_uuid().as_bytes())));
    claim("ver", json!("1.0"));
    if let Some(resource) = managed_identity {
        claim("xms_mirid", json!(resource));
    }
    // Marks the token as emulated.
    claim("xms_emu", json!("lanyard"));
    let header =
        json!({ "typ": "JWT", "alg": "RS256", "x5t": tenant.key_id, "kid": tenant.key_id });
    Ok(IssuedAccessToken {
        token: RedactedText::new(jose::sign_rs256_token(&header, &claims, &tenant.key)?),
        not_before,
        expires_in,
        refresh_in: (expires_in > LONG_LIFE_SECONDS).then_some(expires_in / 2),
    })
}

fn add_subject_claims(claim: &mut impl FnMut(&str, Value), subject: TokenSubject<'_>) {
    match subject {
        TokenSubject::ServicePrincipal(principal) => {
            for name in ["oid", "sub"] {
                claim(name, json!(principal.object_id));
            }
            claim("appid", json!(principal.client_id));
            claim("idtyp", json!("app"));
        }
        TokenSubject::User { user, client, scopes } => {
            for name in ["oid", "sub"] {
                claim(name, json!(user.object_id));
            }
            for name in ["upn", "unique_name"] {
                claim(name, json!(user.principal_name));
            }
            claim("name", json!(user.display_name));
            claim("appid", json!(client));
            claim("idtyp", json!("user"));
            claim("scp", json!(scopes));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::keys::RsaKey;
    use crate::testing::{
        MSI, TENANT, azure_with_test_principals, client_key, sign_token, start_time, tenant_key,
    };

    const VAULT_AUDIENCE: &str = "https://vault.azure.net";

    fn issue_bearer_header(azure: &AzureState) -> String {
        let principal =
            azure.directory.service_principal_by_client_id(MSI.parse().unwrap()).unwrap();
        let tenant = azure.directory.tenant(TENANT).unwrap();
        let grant = TokenGrant {
            subject: TokenSubject::ServicePrincipal(principal),
            resource: VAULT_AUDIENCE,
            auth_method: ClientAuthMethod::KeyOrToken,
            cloud: Cloud::Public,
        };
        let issued = issue_access_token(
            *azure.tokens,
            tenant,
            grant,
            start_time(),
            &mut IdGenerator::Random,
        )
        .unwrap();
        format!("Bearer {}", issued.token.expose())
    }

    fn verify_vault_bearer(
        azure: &AzureState,
        header: &str,
        now: Timestamp,
    ) -> Result<AuthenticatedCaller, BearerTokenError> {
        verify_bearer(azure, Some(header), &[VAULT_AUDIENCE], now)
    }

    #[test]
    fn valid_token_identifies_its_caller_until_expiry() {
        let azure = azure_with_test_principals();
        let header = issue_bearer_header(&azure);
        let caller = verify_vault_bearer(&azure, &header, start_time()).unwrap();
        assert_eq!(caller.app_id, MSI.parse().unwrap());
        assert_eq!(caller.tenant.as_str(), TENANT);
        assert!(caller.resource_id.is_some());
        assert_eq!(caller.audience, VAULT_AUDIENCE);
        let after = |seconds| start_time() + Duration::from_secs(seconds);
        assert!(verify_vault_bearer(&azure, &header, after(86_398)).is_ok());
        assert_eq!(
            verify_vault_bearer(&azure, &header, after(86_399)),
            Err(BearerTokenError::Lifetime)
        );
        let skewed = start_time() - Duration::from_secs(301);
        assert_eq!(verify_vault_bearer(&azure, &header, skewed), Err(BearerTokenError::Lifetime));
        assert!(
            verify_vault_bearer(&azure, &header.replace("Bearer", "bearer"), start_time()).is_ok()
        );
    }

    #[test]
    fn token_audience_is_compared_exactly() {
        let azure = azure_with_test_principals();
        let header = issue_bearer_header(&azure);
        for other in ["https://vault.azure.net/", "https://management.azure.com", ""] {
            let found = verify_bearer(&azure, Some(&header), &[other], start_time());
            assert_eq!(
                found,
                Err(BearerTokenError::Audience { found: VAULT_AUDIENCE.to_owned() }),
                "{other}"
            );
        }
    }

    #[test]
    fn tokens_not_signed_by_a_tenant_are_rejected() {
        let azure = azure_with_test_principals();
        let good = issue_bearer_header(&azure);
        let parsed = UnverifiedToken::parse(good.split_once(' ').unwrap().1).unwrap();
        let claims = Value::Object(parsed.claims);
        let key_id = parsed.header.kid.unwrap();
        let with = |alg: &str, kid: &str, key: &RsaKey| {
            format!("Bearer {}", sign_token(&json!({ "alg": alg, "kid": kid }), &claims, key))
        };
        let resigned = with("RS256", &key_id, &tenant_key());
        assert!(verify_vault_bearer(&azure, &resigned, start_time()).is_ok());
        let cases = [
            (with("RS256", &key_id, &client_key()), BearerTokenError::NotIssuedHere),
            (with("RS256", "other", &tenant_key()), BearerTokenError::NotIssuedHere),
            (with("PS256", &key_id, &tenant_key()), BearerTokenError::NotIssuedHere),
            (with("none", &key_id, &tenant_key()), BearerTokenError::NotIssuedHere),
            ("Bearer a.b.c".to_owned(), BearerTokenError::Malformed),
            ("Basic abc".to_owned(), BearerTokenError::Missing),
            ("Bearer".to_owned(), BearerTokenError::Missing),
        ];
        for (header, expected) in cases {
            assert_eq!(
                verify_vault_bearer(&azure, &header, start_time()),
                Err(expected),
                "{header}"
            );
        }
        assert_eq!(
            verify_bearer(&azure, None, &[VAULT_AUDIENCE], start_time()),
            Err(BearerTokenError::Missing)
        );
    }
}
