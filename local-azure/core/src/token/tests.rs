use std::sync::Arc;
use std::time::Duration;

use lanyard_emulator_state::azure_clouds::AzureClouds;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::directory::TenantSigningKey;
use lanyard_emulator_state::jose::UnverifiedToken;
use lanyard_emulator_state::keys::RsaKey;
use lanyard_emulator_state::testing::{
    MSI, TENANT, USER, azure_with_test_principals, client_key, sign_token as sign_assertion,
    start_time, tenant_key,
};

use super::*;

const VAULT_AUDIENCE: &str = "https://vault.azure.net";

fn issue_bearer_header(azure: &AzureState) -> String {
    let principal = azure.directory.service_principal_by_client_id(MSI.parse().unwrap()).unwrap();
    let tenant = azure.directory.tenant(TENANT).unwrap();
    let clouds = AzureClouds::new(None, 443);
    let grant = TokenGrant {
        subject: TokenSubject::ServicePrincipal(principal),
        audience: VAULT_AUDIENCE,
        version: AccessTokenVersion::V1,
        auth_method: ClientAuthMethod::KeyOrToken,
        cloud: clouds.public(),
        optional: OptionalClaims::default(),
    };
    let issued =
        issue_access_token(*azure.tokens, tenant, grant, start_time(), &mut IdGenerator::Random)
            .unwrap();
    format!("Bearer {}", issued.token.expose())
}

fn verify_vault_bearer(
    azure: &AzureState,
    header: &str,
    now: Timestamp,
) -> Result<Arc<AuthenticatedCaller>, BearerTokenError> {
    verify_bearer(azure, &mut VerifiedTokenCache::default(), Some(header), &[VAULT_AUDIENCE], now)
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
    assert!(verify_vault_bearer(&azure, &header.replace("Bearer", "bearer"), start_time()).is_ok());
}

#[test]
fn token_audience_is_compared_exactly() {
    let azure = azure_with_test_principals();
    let header = issue_bearer_header(&azure);
    for other in ["https://vault.azure.net/", "https://management.azure.com", ""] {
        let found = verify_bearer(
            &azure,
            &mut VerifiedTokenCache::default(),
            Some(&header),
            &[other],
            start_time(),
        );
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
        format!("Bearer {}", sign_assertion(&json!({ "alg": alg, "kid": kid }), &claims, key))
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
        assert_eq!(verify_vault_bearer(&azure, &header, start_time()), Err(expected), "{header}");
    }
    assert_eq!(
        verify_bearer(
            &azure,
            &mut VerifiedTokenCache::default(),
            None,
            &[VAULT_AUDIENCE],
            start_time()
        ),
        Err(BearerTokenError::Missing)
    );
}

fn tenant_mut(azure: &mut AzureState) -> &mut Tenant {
    azure.directory.tenants.first_mut().unwrap()
}

fn new_signing_key(key: RsaKey) -> TenantSigningKey {
    TenantSigningKey::new(key, start_time()).unwrap()
}

#[test]
fn a_cached_token_is_checked_for_audience_lifetime_and_signing_key_each_time() {
    let mut azure = azure_with_test_principals();
    let header = issue_bearer_header(&azure);
    let mut cache = VerifiedTokenCache::default();
    let mut verify = |azure: &AzureState, audience: &str, seconds| {
        let now = start_time() + Duration::from_secs(seconds);
        verify_bearer(azure, &mut cache, Some(&header), &[audience], now).map(|_| ())
    };
    assert_eq!(verify(&azure, VAULT_AUDIENCE, 0), Ok(()));
    assert_eq!(verify(&azure, VAULT_AUDIENCE, 86_398), Ok(()));
    assert_eq!(verify(&azure, VAULT_AUDIENCE, 86_399), Err(BearerTokenError::Lifetime));
    let found = VAULT_AUDIENCE.to_owned();
    let other_audience = verify(&azure, "https://graph.microsoft.com", 0);
    assert_eq!(other_audience, Err(BearerTokenError::Audience { found }));
    tenant_mut(&mut azure).signing_keys.replace_all(new_signing_key(client_key()));
    assert_eq!(verify(&azure, VAULT_AUDIENCE, 0), Err(BearerTokenError::NotIssuedHere));
}

#[test]
fn a_token_for_another_audience_is_not_cached() {
    let azure = azure_with_test_principals();
    let header = issue_bearer_header(&azure);
    let mut cache = VerifiedTokenCache::default();
    let found = verify_bearer(&azure, &mut cache, Some(&header), &["other"], start_time());
    assert!(found.is_err());
    assert_eq!(cache.len(), 0);
    let found = verify_bearer(&azure, &mut cache, Some(&header), &[VAULT_AUDIENCE], start_time());
    assert!(found.is_ok());
    assert_eq!(cache.len(), 1);
}

#[test]
fn rollover_with_an_overlap_keeps_earlier_tokens_valid_until_their_key_is_removed() {
    let mut azure = azure_with_test_principals();
    let before = issue_bearer_header(&azure);
    let verify = |azure: &AzureState, header: &str| {
        verify_vault_bearer(azure, header, start_time()).map(|_| ())
    };
    assert!(tenant_mut(&mut azure).signing_keys.sign_with_next().is_err());
    tenant_mut(&mut azure).signing_keys.publish_next(new_signing_key(client_key()));
    let published =
        |azure: &AzureState| azure.directory.tenants[0].signing_keys.published().count();
    assert_eq!(published(&azure), 2);
    assert_eq!(issue_bearer_header(&azure).split('.').next(), before.split('.').next());

    tenant_mut(&mut azure).signing_keys.sign_with_next().unwrap();
    let after = issue_bearer_header(&azure);
    assert_ne!(after.split('.').next(), before.split('.').next());
    assert_eq!((verify(&azure, &before), verify(&azure, &after)), (Ok(()), Ok(())));

    tenant_mut(&mut azure).signing_keys.remove_previous();
    assert_eq!(published(&azure), 1);
    assert_eq!(verify(&azure, &before), Err(BearerTokenError::NotIssuedHere));
    assert_eq!(verify(&azure, &after), Ok(()));
}

/// The claims of a user's token for an application.
fn user_claims(version: AccessTokenVersion) -> Map<String, Value> {
    let azure = azure_with_test_principals();
    let user = azure.directory.user_by_name(USER).unwrap();
    let client = uuid::uuid!("04b07795-8ddb-461a-bbee-02f9e1bf7b46").into();
    let optional = OptionalClaims {
        groups: Some(vec![Uuid::from_u128(7)]),
        roles: vec!["Reader".to_owned()],
        client_capabilities: vec!["CP1".to_owned()],
    };
    let clouds = AzureClouds::new(None, 443);
    let grant = TokenGrant {
        subject: TokenSubject::User { user, client, scopes: "Files.Read" },
        audience: "api://files",
        version,
        auth_method: ClientAuthMethod::Public,
        cloud: clouds.public(),
        optional,
    };
    let tenant = &azure.directory.tenants[0];
    let issued =
        issue_access_token(*azure.tokens, tenant, grant, start_time(), &mut IdGenerator::Random);
    UnverifiedToken::parse(issued.unwrap().token.expose()).unwrap().claims
}

#[test]
fn claims_of_users_differ_between_the_token_versions() {
    let (one, two) = (user_claims(AccessTokenVersion::V1), user_claims(AccessTokenVersion::V2));
    for claims in [&one, &two] {
        assert_eq!(claims["scp"], "Files.Read");
        assert_eq!(claims["idtyp"], "user");
        assert_eq!(claims["roles"], json!(["Reader"]));
        assert_eq!(claims["groups"], json!([Uuid::from_u128(7)]));
        assert_eq!(claims["xms_cc"], json!(["CP1"]));
        assert_ne!(claims["sub"], claims["oid"]);
    }
    assert_eq!(
        (&one["ver"], &one["appidacr"], &one["upn"]),
        (&json!("1.0"), &json!("0"), &json!(USER))
    );
    assert_eq!(one["iss"], format!("https://sts.windows.net/{TENANT}/"));
    assert_eq!((&two["ver"], &two["azpacr"]), (&json!("2.0"), &json!("0")));
    assert_eq!(two["preferred_username"], USER);
    assert_eq!(two["iss"], format!("https://login.microsoftonline.com/{TENANT}/v2.0"));
    for absent in ["appid", "upn", "idp"] {
        assert!(!two.contains_key(absent), "{absent}");
    }
}
