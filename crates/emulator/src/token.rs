//! Access tokens: what the emulator's Entra issues and what its resources accept.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use lanyard_vocabulary::{ArmResourceId, ClientId, Cloud, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::call::Ids;
use crate::directory::{Principal, Tenant};
use crate::jose::{self, Algorithm, Token};
use crate::keys::{KeyError, SecretText};
use crate::world::World;

/// How long access tokens live. The defaults are those of Azure: an hour for applications, a day
/// for managed identities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TokenPolicy {
    /// Seconds that a token of an application lives.
    pub application_seconds: u32,
    /// Seconds that a token of a managed identity lives; one that lives longer than two hours
    /// says to refresh it at half of its life.
    pub managed_identity_seconds: u32,
}

impl Default for TokenPolicy {
    fn default() -> Self {
        Self { application_seconds: 3_599, managed_identity_seconds: 86_399 }
    }
}

/// Tokens that live longer say when to refresh them: at half of their life.
const LONG_LIFE_SECONDS: u32 = 7_200;
/// How far the clocks of Azure's services may differ.
pub(crate) const SKEW_SECONDS: i64 = 300;

/// Who makes a call, as a verified token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The object id of the principal: what roles are assigned to.
    pub(crate) object_id: Uuid,
    /// The application id.
    pub(crate) app_id: ClientId,
    /// The tenant that issued the token.
    pub(crate) tenant: TenantId,
    /// The Azure resource of a managed identity.
    pub(crate) resource_id: Option<ArmResourceId>,
    /// The audience of the token.
    pub(crate) audience: String,
}

/// Why a bearer token was not accepted. Each service says it in its own words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BearerProblem {
    /// No token was sent.
    #[error("no bearer token was sent")]
    Missing,
    /// The token is not a JSON Web Token.
    #[error("the bearer token is not a JSON Web Token")]
    Malformed,
    /// The token was not signed by a tenant of this world.
    #[error("the bearer token was not issued here")]
    NotIssuedHere,
    /// The token is for another resource.
    #[error("the audience of the token is `{found}`")]
    Audience {
        /// The audience of the token.
        found: String,
    },
    /// The token has ended, or has not begun.
    #[error("the token is outside its lifetime")]
    Lifetime,
}

/// Verifies the token of an `Authorization` header for one of `audiences` (compared exactly).
pub(crate) fn verify_bearer(
    world: &World,
    authorization: Option<&str>,
    audiences: &[impl AsRef<str>],
    now: Timestamp,
) -> Result<Caller, BearerProblem> {
    let (scheme, text) =
        authorization.and_then(|header| header.split_once(' ')).ok_or(BearerProblem::Missing)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(BearerProblem::Missing);
    }
    let token = Token::parse(text.trim()).ok_or(BearerProblem::Malformed)?;
    let key_id = token.header.kid.as_deref().unwrap_or_default();
    let tenant = world
        .directory
        .tenants
        .iter()
        .find(|tenant| tenant.key_id == key_id)
        .ok_or(BearerProblem::NotIssuedHere)?;
    let public = tenant.key.public_der().map_err(|_unreadable| BearerProblem::NotIssuedHere)?;
    // The algorithm is the issuer's choice, never the token's.
    if token.header.alg != "RS256" || !token.is_signed_by(Algorithm::Rs256, &public) {
        return Err(BearerProblem::NotIssuedHere);
    }
    caller(&token, tenant, audiences, now)
}

fn caller(
    token: &Token,
    tenant: &Tenant,
    audiences: &[impl AsRef<str>],
    now: Timestamp,
) -> Result<Caller, BearerProblem> {
    let whole = |claim| token.claims.get(claim).and_then(Value::as_i64);
    let (Some(begins), Some(ends)) = (whole("nbf"), whole("exp")) else {
        return Err(BearerProblem::Malformed);
    };
    let second = now.as_second();
    if second >= ends || second < begins - SKEW_SECONDS {
        return Err(BearerProblem::Lifetime);
    }
    let audience = token.text("aud").ok_or(BearerProblem::Malformed)?;
    if !audiences.iter().any(|accepted| accepted.as_ref() == audience) {
        return Err(BearerProblem::Audience { found: audience.to_owned() });
    }
    let object_id = token.text("oid").and_then(|text| text.parse().ok());
    let app_id = token.text("appid").and_then(|text| text.parse().ok());
    Ok(Caller {
        object_id: object_id.ok_or(BearerProblem::Malformed)?,
        app_id: app_id.ok_or(BearerProblem::Malformed)?,
        tenant: tenant.id.clone(),
        resource_id: token.text("xms_mirid").and_then(|text| text.parse().ok()),
        audience: audience.to_owned(),
    })
}

/// How a principal proved who it is: `appidacr` of its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// By a client secret.
    Secret,
    /// By a certificate, by a federated token, or by the machine it runs on.
    Key,
}

/// What a token is issued for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant<'a> {
    /// The principal.
    pub(crate) principal: &'a Principal,
    /// The resource exactly as it was asked for: it becomes `aud`, slash and all.
    pub(crate) resource: &'a str,
    /// How the principal proved who it is.
    pub(crate) proof: Proof,
    /// The cloud of the token service.
    pub(crate) cloud: Cloud,
}

/// A token that was issued.
#[derive(Debug)]
pub(crate) struct Issued {
    /// The token.
    pub(crate) token: SecretText,
    /// When it begins, in seconds of Unix time.
    pub(crate) not_before: i64,
    /// How long it lives, in seconds.
    pub(crate) expires_in: u32,
    /// When to refresh it, in seconds, for tokens that live long.
    pub(crate) refresh_in: Option<u32>,
}

impl Issued {
    /// When it ends, in seconds of Unix time.
    pub(crate) fn expires_on(&self) -> i64 {
        self.not_before + i64::from(self.expires_in)
    }
}

/// The issuer of version 1.0 tokens, which ARM and the vaults get from either endpoint.
pub(crate) fn issuer(cloud: Cloud, tenant: &TenantId) -> String {
    let host = match cloud {
        Cloud::China => "sts.chinacloudapi.cn",
        Cloud::German => "sts.microsoftonline.de",
        _ => "sts.windows.net",
    };
    format!("https://{host}/{tenant}/")
}

/// Issues a token in the form of version 1.0.
pub(crate) fn issue(
    policy: TokenPolicy,
    tenant: &Tenant,
    grant: Grant<'_>,
    now: Timestamp,
    ids: &mut Ids,
) -> Result<Issued, KeyError> {
    let managed_identity = grant.principal.resource_id();
    let expires_in = if managed_identity.is_some() {
        policy.managed_identity_seconds
    } else {
        policy.application_seconds
    };
    let not_before = now.as_second();
    let issuer = issuer(grant.cloud, &tenant.id);
    let mut claims = Map::new();
    let mut claim = |name: &str, value: Value| claims.insert(name.to_owned(), value);
    claim("aud", json!(grant.resource));
    claim("iss", json!(issuer));
    claim("idp", json!(issuer));
    for name in ["iat", "nbf"] {
        claim(name, json!(not_before));
    }
    claim("exp", json!(not_before + i64::from(expires_in)));
    claim("tid", json!(tenant.id));
    for name in ["oid", "sub"] {
        claim(name, json!(grant.principal.object_id));
    }
    claim("appid", json!(grant.principal.client_id));
    claim("appidacr", json!(if grant.proof == Proof::Secret { "1" } else { "2" }));
    claim("idtyp", json!("app"));
    claim("uti", json!(URL_SAFE_NO_PAD.encode(ids.uuid().as_bytes())));
    claim("ver", json!("1.0"));
    if let Some(resource) = managed_identity {
        claim("xms_mirid", json!(resource));
    }
    // Marks the token, so that nobody takes it for one of Azure's.
    claim("xms_emu", json!("lanyard"));
    let header =
        json!({ "typ": "JWT", "alg": "RS256", "x5t": tenant.key_id, "kid": tenant.key_id });
    Ok(Issued {
        token: SecretText::new(jose::sign(&header, &claims, &tenant.key)?),
        not_before,
        expires_in,
        refresh_in: (expires_in > LONG_LIFE_SECONDS).then_some(expires_in / 2),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::keys::RsaKey;
    use crate::testing::{MSI, TENANT, client_key, epoch, signed, tenant_key, world};

    const VAULT: &str = "https://vault.azure.net";

    fn issued(world: &World) -> String {
        let principal = world.directory.by_client(MSI.parse().unwrap()).unwrap();
        let tenant = world.directory.tenant(TENANT).unwrap();
        let grant = Grant { principal, resource: VAULT, proof: Proof::Key, cloud: Cloud::Public };
        let issued = issue(world.tokens, tenant, grant, epoch(), &mut Ids::Random).unwrap();
        format!("Bearer {}", issued.token.expose())
    }

    fn verify(world: &World, header: &str, now: Timestamp) -> Result<Caller, BearerProblem> {
        verify_bearer(world, Some(header), &[VAULT], now)
    }

    #[test]
    fn a_token_names_its_caller_until_the_second_it_ends() {
        let world = world();
        let header = issued(&world);
        let caller = verify(&world, &header, epoch()).unwrap();
        assert_eq!(caller.app_id, MSI.parse().unwrap());
        assert_eq!(caller.tenant.as_str(), TENANT);
        assert!(caller.resource_id.is_some());
        assert_eq!(caller.audience, VAULT);
        let after = |seconds| epoch() + Duration::from_secs(seconds);
        assert!(verify(&world, &header, after(86_398)).is_ok());
        assert_eq!(verify(&world, &header, after(86_399)), Err(BearerProblem::Lifetime));
        let skewed = epoch() - Duration::from_secs(301);
        assert_eq!(verify(&world, &header, skewed), Err(BearerProblem::Lifetime));
        assert!(verify(&world, &header.replace("Bearer", "bearer"), epoch()).is_ok());
    }

    #[test]
    fn the_audience_is_compared_to_the_letter() {
        let world = world();
        let header = issued(&world);
        for other in ["https://vault.azure.net/", "https://management.azure.com", ""] {
            let found = verify_bearer(&world, Some(&header), &[other], epoch());
            assert_eq!(found, Err(BearerProblem::Audience { found: VAULT.to_owned() }), "{other}");
        }
    }

    #[test]
    fn what_this_world_did_not_sign_is_not_a_token() {
        let world = world();
        let good = issued(&world);
        let parsed = Token::parse(good.split_once(' ').unwrap().1).unwrap();
        let claims = Value::Object(parsed.claims);
        let key_id = parsed.header.kid.unwrap();
        let with = |alg: &str, kid: &str, key: &RsaKey| {
            format!("Bearer {}", signed(&json!({ "alg": alg, "kid": kid }), &claims, key))
        };
        let resigned = with("RS256", &key_id, &tenant_key());
        assert!(verify(&world, &resigned, epoch()).is_ok());
        let cases = [
            (with("RS256", &key_id, &client_key()), BearerProblem::NotIssuedHere),
            (with("RS256", "other", &tenant_key()), BearerProblem::NotIssuedHere),
            (with("PS256", &key_id, &tenant_key()), BearerProblem::NotIssuedHere),
            (with("none", &key_id, &tenant_key()), BearerProblem::NotIssuedHere),
            ("Bearer a.b.c".to_owned(), BearerProblem::Malformed),
            ("Basic abc".to_owned(), BearerProblem::Missing),
            ("Bearer".to_owned(), BearerProblem::Missing),
        ];
        for (header, expected) in cases {
            assert_eq!(verify(&world, &header, epoch()), Err(expected), "{header}");
        }
        assert_eq!(verify_bearer(&world, None, &[VAULT], epoch()), Err(BearerProblem::Missing));
    }
}
