//! A small directory for tests, with its keys and tokens.

use std::sync::LazyLock;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyUsagePurpose};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::azure_state::AzureState;
use crate::certificates::{common_name, days_after, rcgen_key_pair, set_validity};
use crate::directory::{
    Application, CertificateAuthority, EntraDirectory, FederatedCredential, KeyCredential,
    PasswordCredential, ServicePrincipal, ServicePrincipalKind, SubjectNameIssuer, Tenant,
    TrustedIssuer, User,
};
use crate::keys::{RedactedText, RsaKey};
use crate::request::ServiceReply;

pub const TENANT: &str = "11111111-0000-4000-8000-000000000001";
pub const DOMAIN: &str = "contoso.onmicrosoft.com";
pub const LOGIN: &str = "login.microsoftonline.com";
pub const SECRET: &str = "s3cret~of+the/app";
pub const ISSUER: &str = "https://oidc.example.test/cluster";
pub const SUBJECT: &str = "system:serviceaccount:NS:app";
pub const MSI_SUBJECT: &str = "uamsi-cloud-provider";

/// An application with a client secret and a registered certificate.
pub const APP: &str = "22222222-0000-4000-8000-0000000000a1";
/// A managed identity whose certificates come from the authority of the MSI data plane.
pub const MSI: &str = "22222222-0000-4000-8000-0000000000a2";
/// A managed identity with a federated credential.
pub const FEDERATED: &str = "22222222-0000-4000-8000-0000000000a3";

/// A user, and the user's password.
pub const USER: &str = "ada@contoso.onmicrosoft.com";
pub const USER_PASSWORD: &str = "P@ssw0rd of Ada";
pub const USER_OBJECT_ID: Uuid = Uuid::from_u128(0xe1);

/// Key generation is slow: all tests of the binary share these keys.
static KEYS: LazyLock<Vec<RsaKey>> = LazyLock::new(|| RsaKey::generate_many(5).unwrap());

pub fn tenant_key() -> RsaKey {
    KEYS[0].clone()
}
/// The key of the application and of the managed identity's certificate.
pub fn client_key() -> RsaKey {
    KEYS[1].clone()
}
pub fn authority_key() -> RsaKey {
    KEYS[2].clone()
}
pub fn issuer_key() -> RsaKey {
    KEYS[3].clone()
}
pub fn untrusted_key() -> RsaKey {
    KEYS[4].clone()
}

pub fn start_time() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

pub(crate) fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    set_validity(&mut params, days_after(start_time(), -10), days_after(start_time(), 3_650));
    params
}

/// A leaf of `key`, signed by an authority with the common name `authority` and the key `authority_key`.
pub fn signed_leaf_certificate(
    subject: &str,
    key: &RsaKey,
    authority: (&str, &RsaKey),
    validity_days: (i64, i64),
) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(subject);
    let (from, until) = validity_days;
    set_validity(&mut params, days_after(start_time(), from), days_after(start_time(), until));
    let issuer = Issuer::new(authority_params(authority.0), rcgen_key_pair(authority.1).unwrap());
    params.signed_by(&rcgen_key_pair(key).unwrap(), &issuer).unwrap().der().to_vec()
}

pub fn self_signed_certificate(subject: &str, key: &RsaKey, validity_days: (i64, i64)) -> Vec<u8> {
    signed_leaf_certificate(subject, key, (subject, key), validity_days)
}

pub const MSI_AUTHORITY: &str = "msi";

fn enabled_principal(client: &str, object: u128, kind: ServicePrincipalKind) -> ServicePrincipal {
    let (client, tenant) = (client.parse().unwrap(), TENANT.parse().unwrap());
    ServicePrincipal::new(Uuid::from_u128(object), client, tenant, "probe", kind)
        .created_at(start_time())
}

/// The service principal of a client, mutable.
pub fn principal_mut<'a>(azure: &'a mut AzureState, client: &str) -> &'a mut ServicePrincipal {
    azure.directory.service_principal_by_client_id_mut(client.parse().unwrap()).unwrap()
}

/// The application of a client, mutable.
pub fn application_mut<'a>(azure: &'a mut AzureState, client: &str) -> &'a mut Application {
    azure.directory.application_by_client_id_mut(client.parse().unwrap()).unwrap()
}

/// The application with a client secret and a registered certificate.
fn insert_test_application(directory: &mut EntraDirectory) {
    let (client, tenant) = (APP.parse().unwrap(), TENANT.parse().unwrap());
    let mut app = Application::new(Uuid::from_u128(0xb1), client, tenant, "probe", start_time());
    app.passwords.push(PasswordCredential {
        key_id: Uuid::from_u128(0xd1),
        display_name: None,
        text: RedactedText::new(SECRET.to_owned()),
        starts: start_time(),
        expires: days_after(start_time(), 30),
    });
    app.keys.push(KeyCredential {
        key_id: Uuid::from_u128(0xd2),
        display_name: None,
        certificate: self_signed_certificate("app", &client_key(), (-1, 90)),
        starts: start_time(),
        expires: days_after(start_time(), 60),
    });
    directory.insert_application(app);
    let kind = ServicePrincipalKind::Application;
    directory.insert_service_principal(enabled_principal(APP, 0xc1, kind));
}

fn managed_identity_kind(name: &str) -> ServicePrincipalKind {
    let id = format!(
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{name}"
    );
    ServicePrincipalKind::ManagedIdentity { resource_id: id.parse().unwrap() }
}

/// An enabled user of the test tenant.
pub fn test_user(principal_name: &str, object_id: Uuid) -> User {
    User {
        object_id,
        tenant: TENANT.parse().unwrap(),
        principal_name: principal_name.to_owned(),
        display_name: "Ada".to_owned(),
        enabled: true,
        password: RedactedText::new(USER_PASSWORD.to_owned()),
        created: start_time(),
        properties: serde_json::Map::new(),
    }
}

pub fn azure_with_test_principals() -> AzureState {
    let mut azure = AzureState::default();
    let directory = &mut azure.directory;
    let domains = vec![DOMAIN.to_owned()];
    let tenant = Tenant::new(TENANT.parse().unwrap(), domains, tenant_key(), start_time());
    directory.tenants.push(tenant.unwrap());
    insert_test_application(directory);
    let mut msi = enabled_principal(MSI, 0xc2, managed_identity_kind("msi"));
    msi.subject_name_issuer = Some(SubjectNameIssuer {
        subject: MSI_SUBJECT.to_owned(),
        authority: MSI_AUTHORITY.to_owned(),
    });
    let mut federated = enabled_principal(FEDERATED, 0xc3, managed_identity_kind("federated"));
    federated.federated_credentials.push(FederatedCredential::new(
        "one",
        ISSUER,
        SUBJECT,
        "openshift",
    ));
    directory.insert_service_principal(msi);
    directory.insert_service_principal(federated);
    directory.insert_user(test_user(USER, USER_OBJECT_ID));
    let certificate = authority_params(MSI_AUTHORITY)
        .self_signed(&rcgen_key_pair(&authority_key()).unwrap())
        .unwrap();
    let authority =
        CertificateAuthority { certificate: certificate.der().to_vec(), key: authority_key() };
    directory.authorities.insert(MSI_AUTHORITY.to_owned(), authority);
    let keys = [("k1".to_owned(), issuer_key())].into();
    directory.issuers.insert(ISSUER.to_owned(), TrustedIssuer { keys, ..TrustedIssuer::default() });
    azure.imds.default_node.assigned = vec![MSI.parse().unwrap()];
    azure.imds.identity_header = Some(RedactedText::new("s3cret-header".to_owned()));
    azure
}

/// Signs a token as a client would, with the header's `alg`.
pub fn sign_token(header: &Value, claims: &Value, key: &RsaKey) -> String {
    let encode = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let message = format!("{}.{}", encode(header), encode(claims));
    let pair = RsaKeyPair::from_pkcs8(key.pkcs8()).unwrap();
    let padding: &'static dyn RsaEncoding =
        if header["alg"] == "PS256" { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(padding, &SystemRandom::new(), message.as_bytes(), &mut signature).unwrap();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// The claims of a client-signed assertion for the global token endpoint.
pub fn assertion_claims(client: &str) -> Value {
    let now = start_time().as_second();
    json!({
        "aud": format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/token"),
        "iss": client,
        "sub": client,
        "jti": "6f4a",
        "nbf": now,
        "exp": now + 600,
    })
}

pub fn reply_json(reply: &ServiceReply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

/// The AADSTS code of an error reply, or `None` for a success.
pub fn aadsts_code(reply: &ServiceReply) -> Option<u64> {
    reply_json(reply)["error_codes"][0].as_u64()
}

/// The claims of an access token.
pub fn token_claims(token: &str) -> Value {
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}
