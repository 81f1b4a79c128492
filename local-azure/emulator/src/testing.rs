//! A small seeded state for tests, and a fixture that calls the engine without sockets.

use std::net::Ipv4Addr;
use std::sync::{Arc, LazyLock};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use jiff::Timestamp;
use lanyard_clock::ManualClock;
use lanyard_emulator_core::authority::LocalAuthority;
use lanyard_emulator_core::engine::EmulatorEngine;
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::azure_clouds::AzureClouds;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::certificates::{common_name, days_after, rcgen_key_pair, set_validity};
use lanyard_emulator_state::directory::{
    Application, CertificateAuthority, EntraDirectory, FederatedCredential, KeyCredential,
    PasswordCredential, ServicePrincipal, ServicePrincipalKind, SubjectNameIssuer, Tenant,
    TrustedIssuer, User,
};
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::keys::{RedactedText, RsaKey};
use lanyard_emulator_state::request::{RequestScheme, ServiceReply, ServiceRequest};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyUsagePurpose};
use serde_json::{Value, json};
use uuid::Uuid;

pub(crate) const TENANT: &str = "11111111-0000-4000-8000-000000000001";
pub(crate) const DOMAIN: &str = "contoso.onmicrosoft.com";
pub(crate) const LOGIN: &str = "login.microsoftonline.com";
pub(crate) const SECRET: &str = "s3cret~of+the/app";
pub(crate) const ISSUER: &str = "https://oidc.example.test/cluster";
pub(crate) const SUBJECT: &str = "system:serviceaccount:NS:app";
pub(crate) const MSI_SUBJECT: &str = "uamsi-cloud-provider";

/// An application with a client secret and a registered certificate.
pub(crate) const APP: &str = "22222222-0000-4000-8000-0000000000a1";
/// A managed identity whose certificates come from the authority of the MSI data plane.
pub(crate) const MSI: &str = "22222222-0000-4000-8000-0000000000a2";
/// A managed identity with a federated credential.
pub(crate) const FEDERATED: &str = "22222222-0000-4000-8000-0000000000a3";

/// A user, and the user's password.
pub(crate) const USER: &str = "ada@contoso.onmicrosoft.com";
pub(crate) const USER_PASSWORD: &str = "P@ssw0rd of Ada";
pub(crate) const USER_OBJECT_ID: Uuid = Uuid::from_u128(0xe1);

/// Key generation is slow: all tests of the binary share these keys.
static KEYS: LazyLock<Vec<RsaKey>> = LazyLock::new(|| RsaKey::generate_many(5).unwrap());

pub(crate) fn tenant_key() -> RsaKey {
    KEYS[0].clone()
}
/// The key of the application and of the managed identity's certificate.
pub(crate) fn client_key() -> RsaKey {
    KEYS[1].clone()
}
pub(crate) fn authority_key() -> RsaKey {
    KEYS[2].clone()
}
pub(crate) fn issuer_key() -> RsaKey {
    KEYS[3].clone()
}
pub(crate) fn untrusted_key() -> RsaKey {
    KEYS[4].clone()
}

pub(crate) fn start_time() -> Timestamp {
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
pub(crate) fn signed_leaf_certificate(
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

pub(crate) fn self_signed_certificate(
    subject: &str,
    key: &RsaKey,
    validity_days: (i64, i64),
) -> Vec<u8> {
    signed_leaf_certificate(subject, key, (subject, key), validity_days)
}

pub(crate) const MSI_AUTHORITY: &str = "msi";

fn enabled_principal(client: &str, object: u128, kind: ServicePrincipalKind) -> ServicePrincipal {
    let (client, tenant) = (client.parse().unwrap(), TENANT.parse().unwrap());
    ServicePrincipal::new(Uuid::from_u128(object), client, tenant, "probe", kind)
        .created_at(start_time())
}

/// The service principal of a client, for changes.
pub(crate) fn principal_mut<'a>(
    azure: &'a mut AzureState,
    client: &str,
) -> &'a mut ServicePrincipal {
    azure.directory.service_principal_by_client_id_mut(client.parse().unwrap()).unwrap()
}

/// The application of a client, for changes.
pub(crate) fn application_mut<'a>(azure: &'a mut AzureState, client: &str) -> &'a mut Application {
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
pub(crate) fn test_user(principal_name: &str, object_id: Uuid) -> User {
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

pub(crate) fn azure_with_test_principals() -> AzureState {
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
pub(crate) fn sign_token(header: &Value, claims: &Value, key: &RsaKey) -> String {
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
pub(crate) fn assertion_claims(client: &str) -> Value {
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

/// The engine of a state, called without sockets.
#[derive(Debug)]
pub(crate) struct EngineFixture {
    pub(crate) engine: EmulatorEngine,
    pub(crate) clock: ManualClock,
}

impl EngineFixture {
    pub(crate) fn new(azure: AzureState) -> Self {
        Self::with_clouds(AzureClouds::new(None, 0), azure)
    }

    pub(crate) fn with_clouds(clouds: AzureClouds, azure: AzureState) -> Self {
        let clock = ManualClock::starting_at(start_time());
        let authority = Arc::new(LocalAuthority::generate(&clouds).unwrap());
        let ids = IdGenerator::seeded(Uuid::from_u128(7));
        let engine =
            EmulatorEngine::new(Arc::new(clock.clone()), authority, clouds, azure, ids, None);
        Self { engine, clock }
    }

    pub(crate) fn send_request(
        &self,
        ingress: Ingress,
        method: &Method,
        url: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> ServiceReply {
        let url = url::Url::parse(url).unwrap();
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                let name: HeaderName = name.parse().unwrap();
                (name, HeaderValue::from_str(value).unwrap())
            })
            .collect();
        let request = ServiceRequest {
            method: method.clone(),
            scheme: if ingress == Ingress::Tunnel {
                RequestScheme::Https
            } else {
                RequestScheme::Http
            },
            host: url.host_str().unwrap().to_owned(),
            client_ip: Some(Ipv4Addr::LOCALHOST.into()),
            port: url.port_or_known_default().unwrap(),
            path: self.engine.clouds.request_path(url.host_str().unwrap(), url.path()),
            query: url.query_pairs().into_owned().collect(),
            headers,
            body: Bytes::copy_from_slice(body.as_bytes()),
        };
        self.engine.handle_request(&request, ingress).reply
    }

    pub(crate) fn get(
        &self,
        ingress: Ingress,
        url: &str,
        headers: &[(&str, &str)],
    ) -> ServiceReply {
        self.send_request(ingress, &Method::GET, url, headers, "")
    }

    /// Posts a token request to the v2.0 endpoint of a host.
    pub(crate) fn request_token_at_host(
        &self,
        host: &str,
        tenant: &str,
        fields: &[(&str, &str)],
    ) -> ServiceReply {
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs([
                ("grant_type", "client_credentials"),
                ("scope", "https://vault.azure.net/.default"),
            ])
            .extend_pairs(fields)
            .finish();
        let url = format!("https://{host}/{tenant}/oauth2/v2.0/token");
        self.send_request(Ingress::Tunnel, &Method::POST, &url, &[], &body)
    }

    pub(crate) fn request_token(&self, fields: &[(&str, &str)]) -> ServiceReply {
        self.request_token_at_host(LOGIN, TENANT, fields)
    }

    /// Requests a token with an assertion.
    pub(crate) fn request_token_with_assertion(
        &self,
        client: &str,
        assertion: &str,
    ) -> ServiceReply {
        self.request_token(&[
            ("client_id", client),
            ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
            ("client_assertion", assertion),
        ])
    }
}

pub(crate) fn reply_json(reply: &ServiceReply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

/// The AADSTS code of an error reply, or `None` for a success.
pub(crate) fn aadsts_code(reply: &ServiceReply) -> Option<u64> {
    reply_json(reply)["error_codes"][0].as_u64()
}

/// The claims of an access token.
pub(crate) fn token_claims(token: &str) -> Value {
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}
