use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use lanyard_clock::ErrorHint as _;
use lanyard_emulator_state::certificate_bundle::CredentialBundleFormat;
use lanyard_emulator_state::identity_fault::IdentityFault;
use lanyard_emulator_state::keys::{AsymmetricKey, EllipticCurve};
use lanyard_emulator_state::vaults::key_content::KeyContent;
use lanyard_emulator_state::vaults::object_store::StoredObjectVersion;
use lanyard_emulator_state::vaults::vault::SecretContent;
use lanyard_vocabulary::{Cloud, Component, EntraClientId, ObjectEncoding};
use p12_keystore::Pkcs12Archive;
use serde_json::Value;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::*;
use crate::fault_plan::FaultPlan;
use crate::seed::plan::NodePlan;
use crate::subject_token::{SubjectTokenError, SubjectTokenSpec, mint_subject_token};
use crate::testing::seeded_state::{
    SEED_TIME, nine_identity_plan, parse_value, seed_azure, seeded_nine_identities,
};

fn plan_with_one_identity(component: Component, change: impl FnOnce(&mut SeedPlan)) -> SeedPlan {
    let mut plan = nine_identity_plan();
    plan.identities.retain(|identity| identity.component == component);
    plan.kms_key = None;
    change(&mut plan);
    plan
}

fn latest_secret(azure: &AzureState, component: Component) -> &StoredObjectVersion<SecretContent> {
    let holder = azure.registry.component_identity(component).unwrap();
    let vault = azure.vaults.vault_at_host(&holder.vault_host).unwrap();
    azure.vaults.secrets.version(&vault.host, holder.secret_name.as_str(), None).unwrap().1
}

fn decode_secret_value(encoding: ObjectEncoding, text: &str) -> Vec<u8> {
    match encoding {
        ObjectEncoding::Utf8 => text.as_bytes().to_vec(),
        ObjectEncoding::Hex => hex::decode(text).unwrap(),
        ObjectEncoding::Base64 => STANDARD.decode(text).unwrap(),
    }
}

fn credential_document(azure: &AzureState, component: Component) -> Value {
    let holder = azure.registry.component_identity(component).unwrap();
    let text = decode_secret_value(
        holder.encoding,
        latest_secret(azure, component).content.value.expose(),
    );
    serde_json::from_slice(&text).unwrap()
}

/// The key (PKCS#8) and the certificates of a document, leaf first.
fn key_and_certificates(
    document: &Value,
    bundle: CredentialBundleFormat,
) -> (Vec<u8>, Vec<Vec<u8>>) {
    let bytes = STANDARD.decode(document["client_secret"].as_str().unwrap()).unwrap();
    if bundle == CredentialBundleFormat::Pem {
        let text = String::from_utf8(bytes).unwrap();
        let block = |label: &str, at: usize| {
            let begin = format!("-----BEGIN {label}-----\n");
            let body = text.split(&begin).nth(at).unwrap().split("-----END").next().unwrap();
            STANDARD.decode(body.replace('\n', "")).unwrap()
        };
        let count = text.matches("-----BEGIN CERTIFICATE-----").count();
        let chain = (1..=count).map(|at| block("CERTIFICATE", at)).collect();
        return (block("PRIVATE KEY", 1), chain);
    }
    let archive = Pkcs12Archive::from_pkcs12(&bytes, "").unwrap();
    let key = archive.keys[0].key.as_der().to_vec();
    (key, archive.certs.iter().map(|bag| bag.cert.as_der().to_vec()).collect())
}

#[test]
fn every_component_gets_a_complete_credential_document() {
    let (azure, _) = seed_azure(&nine_identity_plan());
    for component in Component::ALL {
        let document = credential_document(&azure, component);
        let keys: Vec<_> = document.as_object().unwrap().keys().cloned().collect();
        assert_eq!(
            keys,
            [
                "authentication_endpoint",
                "cannot_renew_after",
                "client_id",
                "client_secret",
                "client_secret_url",
                "custom_claims",
                "mtls_authentication_endpoint",
                "not_after",
                "not_before",
                "object_id",
                "renew_after",
                "resource_id",
                "tenant_id"
            ],
            "{component}"
        );
        let holder = azure.registry.component_identity(component).unwrap();
        assert_eq!(document["client_id"], holder.client_id.to_string());
        assert_eq!(document["authentication_endpoint"], "https://login.microsoftonline.com/");
        for stamp in ["not_before", "not_after", "renew_after", "cannot_renew_after"] {
            let text = document[stamp].as_str().unwrap();
            assert!(text.parse::<Timestamp>().is_ok() && text.ends_with('Z'), "{stamp}: {text}");
        }
        let attributes = latest_secret(&azure, component).attributes;
        assert_eq!(attributes.not_before.unwrap().to_string(), document["not_before"]);
        assert_eq!(attributes.expires.unwrap().to_string(), document["not_after"]);
        let tags = latest_secret(&azure, component).tags.as_ref().unwrap();
        assert_eq!(tags["renew_after"], document["renew_after"]);
    }
}

#[test]
fn certificates_come_from_the_authority_and_match_their_keys_in_every_bundle() {
    let (azure, _) = seed_azure(&nine_identity_plan());
    let authority = &azure.directory.authorities
        [lanyard_emulator_state::managed_identity_credential::MSI_AUTHORITY];
    let (_, authority) = X509Certificate::from_der(&authority.certificate).unwrap();
    for component in Component::ALL {
        let holder = azure.registry.component_identity(component).unwrap();
        let (key, chain) =
            key_and_certificates(&credential_document(&azure, component), holder.bundle);
        let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
        assert_eq!(chain.len(), 2);
        assert_eq!(leaf.issuer(), authority.subject());
        let public = RsaKey::from_pkcs8(key).public_der().unwrap();
        assert_eq!(leaf.public_key().subject_public_key.data.as_ref(), public);
        let name = leaf.subject().iter_common_name().next().unwrap().as_str().unwrap();
        assert_eq!(name, holder.client_id.to_string());
        let days = (leaf.validity().not_after.timestamp() - leaf.validity().not_before.timestamp())
            / 86_400;
        assert_eq!(days, 90);
    }
}

#[test]
fn rotation_ends_the_expiry_of_a_credential() {
    let fault = FaultPlan { fault: IdentityFault::Expired, component: Component::Disk };
    let (mut azure, mut ids) = seed_azure(&plan_with_one_identity(Component::Disk, |plan| {
        plan.identities[0].bundle = CredentialBundleFormat::Pem;
        plan.drills.push(fault);
    }));
    let end_of_certificate = |azure: &AzureState| {
        let document = credential_document(azure, Component::Disk);
        let (_, chain) = key_and_certificates(&document, CredentialBundleFormat::Pem);
        let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
        leaf.validity().not_after.timestamp()
    };
    assert!(end_of_certificate(&azure) < SEED_TIME.as_second());
    renew_credential(&mut azure, Component::Disk, &mut ids, SEED_TIME, 0).unwrap();
    assert!(end_of_certificate(&azure) > SEED_TIME.as_second());
}

#[test]
fn rotation_writes_a_new_version_with_later_not_before_and_new_key() {
    let (mut azure, mut ids) = seed_azure(&plan_with_one_identity(Component::Disk, |_| {}));
    let before = credential_document(&azure, Component::Disk);
    let first = rotate_credential(&mut azure, Component::Disk, &mut ids, SEED_TIME, 0).unwrap();
    let later = SEED_TIME + SignedDuration::from_hours(24 * 46);
    let second = rotate_credential(&mut azure, Component::Disk, &mut ids, later, 0).unwrap();
    let after = credential_document(&azure, Component::Disk);
    assert!(first.not_before < second.not_before);
    assert_ne!(before["client_secret"], after["client_secret"]);
    assert_eq!(after["not_before"], second.not_before.to_string());
    assert_eq!(latest_secret(&azure, Component::Disk).id, second.version);
    assert!(first.not_before.to_string().as_str() > before["not_before"].as_str().unwrap());
}

#[test]
fn padding_grows_the_document_up_to_the_secret_size_limit() {
    let (mut azure, mut ids) =
        seed_azure(&plan_with_one_identity(Component::CloudProvider, |_| {}));
    let mut issue = |padding| {
        rotate_credential(&mut azure, Component::CloudProvider, &mut ids, SEED_TIME, padding)
    };
    let plain = issue(0).unwrap().bytes;
    assert!((4_000..9_000).contains(&plain), "{plain}");
    let padded = issue(10_000).unwrap().bytes;
    // Keys and signatures of another certificate may be some bytes shorter.
    assert!(padded + 64 >= plain + 10_000, "{padded} after {plain}");
    assert!(matches!(issue(30_000), Err(SeedError::CredentialTooLarge { .. })));
}

#[test]
fn value_faults_break_the_documented_part() {
    let broken = |fault| {
        let planned_fault = FaultPlan { fault, component: Component::CloudProvider };
        seed_azure(&plan_with_one_identity(Component::CloudProvider, |plan| {
            plan.drills.push(planned_fault);
        }))
        .0
    };
    let component = Component::CloudProvider;
    let encoded = broken(IdentityFault::Encoding);
    let text = latest_secret(&encoded, component).content.value.expose();
    assert!(serde_json::from_str::<Value>(text).is_err());
    assert!(serde_json::from_slice::<Value>(&STANDARD.decode(text).unwrap()).is_ok());

    let expired = broken(IdentityFault::Expired);
    let claims = credential_document(&expired, component);
    let (_, chain) = key_and_certificates(&claims, CredentialBundleFormat::Pem);
    let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
    assert!(leaf.validity().not_after.timestamp() < SEED_TIME.as_second());
    assert!(claims["not_after"].as_str().unwrap().parse::<Timestamp>().unwrap() > SEED_TIME);

    let (key, chain) = key_and_certificates(
        &credential_document(&broken(IdentityFault::KeyMismatch), component),
        CredentialBundleFormat::Pem,
    );
    let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
    let public = RsaKey::from_pkcs8(key).public_der().unwrap();
    assert_ne!(leaf.public_key().subject_public_key.data.as_ref(), public);

    let missing_leaf = broken(IdentityFault::MissingLeaf);
    let document = credential_document(&missing_leaf, component);
    let (_, chain) = key_and_certificates(&document, CredentialBundleFormat::Pem);
    let authority = missing_leaf.directory.authorities.values().next().unwrap();
    assert_eq!(chain, std::slice::from_ref(&authority.certificate));

    let audience = credential_document(&broken(IdentityFault::Audience), component);
    assert_eq!(audience["authentication_endpoint"], "https://sts.windows.net/");
}

#[test]
fn plan_problems_are_all_reported_before_seeding() {
    let mut plan = nine_identity_plan();
    plan.cloud = Cloud::Stack;
    plan.subnet_id = plan.vnet_id.clone();
    plan.test_clients = true;
    plan.vault.name = parse_value("Test-demo-abcde");
    plan.identities[0].client_id = Some(parse_value("44444444-4444-4444-8444-444444444444"));
    plan.identities[1].client_id = Some(parse_value("55555555-5555-4555-8555-555555555555"));
    plan.identities[1].secret_name = parse_value("DEMO-cloud-provider");
    plan.identities[2].client_id = Some(plan.vault_reader_client_id);
    plan.identities[3].component = Component::Kms;
    plan.drills
        .push(FaultPlan { fault: IdentityFault::Expired, component: Component::ImageRegistry });
    let fields: Vec<_> =
        plan.validation_problems().into_iter().map(|problem| problem.field).collect();
    assert_eq!(
        fields,
        [
            "cloud",
            "subnetId",
            "infraId",
            "identities[1].secretName",
            "identities[1].encoding",
            "identities[2].clientId",
            "identities[8].component",
            "drills[0].component"
        ]
    );
    let mut azure = AzureState::default();
    let refused = apply_plan(&plan, &mut azure, &mut IdGenerator::Random, SEED_TIME).unwrap_err();
    assert!(matches!(&refused, SeedError::Plan { problems } if problems.len() == 8));
    assert!(refused.hint().is_some());
    assert!(azure.directory.tenants.is_empty());
}

#[test]
fn nodes_of_a_plan_need_unique_names_and_addresses() {
    let node = |name: &str, address: &str| NodePlan {
        name: name.to_owned(),
        identities: Vec::new(),
        client_addresses: vec![address.parse().unwrap()],
    };
    let mut plan = nine_identity_plan();
    plan.nodes = vec![node("worker-1", "127.0.0.2"), node("worker-2", "127.0.0.3")];
    assert!(plan.validation_problems().is_empty());
    plan.nodes.extend([node("worker-1", "127.0.0.3"), node("Worker", "127.0.0.4")]);
    let fields: Vec<_> =
        plan.validation_problems().into_iter().map(|problem| problem.field).collect();
    assert_eq!(fields, ["nodes[2].name", "nodes[2].clientAddresses", "nodes[3].name"]);
}

#[test]
fn scopes_in_the_same_resource_group_get_one_assignment() {
    let plan = plan_with_one_identity(Component::File, |plan| {
        let group = "/subscriptions/sub/resourceGroups/DEMO-abcde/providers/Microsoft.Network";
        plan.vnet_id = parse_value(&format!("{group}/virtualNetworks/v"));
        plan.subnet_id = parse_value(&format!("{group}/virtualNetworks/v/subnets/s"));
        plan.security_group_id = parse_value(&format!("{group}/networkSecurityGroups/n"));
    });
    let (azure, _) = seed_azure(&plan);
    let holder = azure.registry.component_identity(Component::File).unwrap();
    assert_eq!(azure.authorization.of_principal(holder.object_id).count(), 1);
}

#[test]
fn components_sharing_a_secret_or_client_id_share_an_identity() {
    let mut plan = nine_identity_plan();
    let client: EntraClientId = parse_value("44444444-4444-4444-8444-444444444444");
    plan.kms_key = None;
    plan.identities.truncate(3);
    let (first, rest) = plan.identities.split_first_mut().unwrap();
    first.encoding = rest[0].encoding;
    first.secret_name = parse_value("DEMO-SHARED");
    rest[0].secret_name = parse_value("demo-shared");
    rest[0].client_id = Some(client);
    rest[1].client_id = Some(client);
    assert_eq!(plan.validation_problems(), []);
    let (mut azure, mut ids) = seed_azure(&plan);
    let holders = azure.registry.holders.clone();
    assert!(holders.iter().all(|holder| holder.client_id == client));
    let principals = azure.directory.service_principals().values();
    assert_eq!(principals.filter(|known| known.client_id == client).count(), 1);
    let vault = azure.vaults.vault_at_host(&holders[0].vault_host).unwrap();
    assert_eq!(
        azure.vaults.secrets.version(&vault.host, "demo-shared", None).unwrap().1.id,
        latest_secret(&azure, holders[1].component).id
    );

    let first =
        rotate_credential(&mut azure, holders[0].component, &mut ids, SEED_TIME, 0).unwrap();
    let second =
        rotate_credential(&mut azure, holders[1].component, &mut ids, SEED_TIME, 0).unwrap();
    assert!(first.not_before < second.not_before, "one secret, one order of its credentials");
    let planned_fault =
        FaultPlan { fault: IdentityFault::Encoding, component: holders[0].component };
    planned_fault.apply(&mut azure, &mut ids, SEED_TIME).unwrap();
    rotate_credential(&mut azure, holders[1].component, &mut ids, SEED_TIME, 0).unwrap();
    let text = latest_secret(&azure, holders[1].component).content.value.expose();
    let wrongly = STANDARD.decode(text).unwrap();
    assert!(serde_json::from_slice::<Value>(&wrongly).is_ok(), "the fault is of the secret");
}

#[test]
fn networks_may_be_in_another_subscription_and_the_subnet_in_another_network() {
    let plan = plan_with_one_identity(Component::Network, |plan| {
        let network = "/subscriptions/hub/resourceGroups/net/providers/Microsoft.Network";
        plan.vnet_id = parse_value(&format!("{network}/virtualNetworks/first"));
        plan.subnet_id = parse_value(&format!("{network}/virtualNetworks/second/subnets/s"));
    });
    assert_eq!(plan.validation_problems(), []);
    let (azure, _) = seed_azure(&plan);
    let resources = &azure.resources;
    assert_eq!(resources.subscription("hub").unwrap().tenant, plan.tenant);
    let group = "/subscriptions/hub/resourceGroups/net";
    let second = format!("{group}/providers/Microsoft.Network/virtualNetworks/second");
    for id in [group, second.as_str(), plan.vnet_id.as_str(), plan.subnet_id.as_str()] {
        assert!(resources.resource(&parse_value(id)).is_some(), "{id}");
    }
    let holder = azure.registry.component_identity(Component::Network).unwrap();
    let scopes: Vec<_> = azure
        .authorization
        .of_principal(holder.object_id)
        .map(|held| held.scope.to_string())
        .collect();
    assert!(scopes.iter().any(|scope| scope == group), "{scopes:?}");
}

#[test]
fn test_client_vault_name_is_valid_for_any_infrastructure_id() {
    let cases = [
        ("demo-abcde", "test-demo-abcde"),
        ("A-name.much--longer-than-17-x1y2z", "test-ger-than-17-x1y2z"),
        ("aaaa-1234567890123456-", "test-1234567890123456"),
        ("...", "test"),
    ];
    for (infra_id, expected) in cases {
        let plan = SeedPlan { infra_id: parse_value(infra_id), ..nine_identity_plan() };
        assert_eq!(plan.test_client_vault_name().unwrap().as_str(), expected, "{infra_id}");
        assert!(expected.len() <= 24);
    }
}

#[test]
fn test_clients_belong_to_the_subscription_tenant() {
    let plan = SeedPlan { test_clients: true, ..plan_with_one_identity(Component::Disk, |_| {}) };
    assert_ne!(plan.tenant, plan.vault.tenant);
    let (azure, _) = seed_azure(&plan);
    let test_clients = azure.registry.test_clients.as_ref().unwrap();
    let vault = azure.vaults.vault_at_host(&test_clients.vault_host).unwrap();
    assert_eq!(vault.settings.tenant, plan.tenant);
    for client in
        [test_clients.secret_client, test_clients.certificate_client, test_clients.federated_client]
    {
        assert_eq!(
            azure.directory.service_principal_by_client_id(client).unwrap().tenant,
            plan.tenant
        );
    }
    let id = "/subscriptions/sub/resourceGroups/demo-abcde/providers/Microsoft.KeyVault/vaults/test-demo-abcde";
    assert!(azure.resources.resource(&parse_value(id)).is_some());
}

#[test]
fn seed_plan_round_trips_with_documented_field_names() {
    let mut plan = nine_identity_plan();
    plan.drills.push(FaultPlan { fault: IdentityFault::MissingSecret, component: Component::Kms });
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<SeedPlan>(&text).unwrap(), plan);
    assert!(text.contains(r#""drills":[{"fault":"missing-secret","component":"kms"}]"#), "{text}");
    assert!(text.contains(r#""bundle":"legacy-pkcs12""#), "{text}");
}

#[test]
fn test_clients_get_a_signed_subject_token_and_vault_objects() {
    let (azure, mut ids) = seeded_nine_identities();
    let test_clients = azure.registry.test_clients.clone().unwrap();
    let spec = SubjectTokenSpec {
        issuer: &test_clients.issuer,
        subject: &test_clients.subject,
        audience: &test_clients.audience,
        lifetime_seconds: 600,
    };
    let token = mint_subject_token(&azure, spec, &mut ids, SEED_TIME).unwrap();
    assert_eq!(token.expose().split('.').count(), 3);
    assert!(
        azure.directory.service_principal_by_client_id(test_clients.federated_client).is_some()
    );
    let vault = azure.vaults.vault_at_host(&test_clients.vault_host).unwrap();
    assert!(azure.vaults.certificates.version(&vault.host, "test-certificate", None).is_ok());
    for (name, curve) in [
        ("test-key-p256", EllipticCurve::P256),
        ("test-key-p384", EllipticCurve::P384),
        ("test-key-p521", EllipticCurve::P521),
    ] {
        let (_, version) = azure.vaults.keys.version(&vault.host, name, None).unwrap();
        let stored = serde_json::to_string(&version.content).unwrap();
        let read: KeyContent = serde_json::from_str(&stored).unwrap();
        for content in [&version.content, &read] {
            let AsymmetricKey::Ec(key) = &content.key else { panic!("{name} is no curve") };
            assert_eq!(key.curve(), curve, "{name}");
        }
    }
    let unseeded = AzureState::default();
    let refused = mint_subject_token(&unseeded, spec, &mut ids, SEED_TIME).unwrap_err();
    assert!(matches!(refused, SubjectTokenError::NoIssuer));
    let client: EntraClientId = test_clients.certificate_client;
    assert_eq!(azure.directory.application_by_client_id(client).unwrap().keys.len(), 1);
}

#[test]
fn debug_output_never_contains_private_keys() {
    let (azure, _) = seeded_nine_identities();
    let printed = format!("{azure:?}");
    assert!(!printed.contains("PRIVATE KEY"), "a key is printed");
    let document = latest_secret(&azure, Component::Disk).content.value.expose();
    assert!(!printed.contains(&document[100..200]), "a secret is printed");
}

fn azure_with_test_clients(namespace: uuid::Uuid, identities: usize) -> AzureState {
    let mut plan = SeedPlan { test_clients: true, ..nine_identity_plan() };
    plan.identities.truncate(identities);
    plan.kms_key = None;
    let mut azure = AzureState::default();
    let mut ids = IdGenerator::seeded(namespace);
    apply_plan(&plan, &mut azure, &mut ids, SEED_TIME).unwrap();
    azure
}

#[test]
fn credentials_of_test_clients_depend_on_the_seed_only() {
    let credentials = |namespace, identities| {
        let azure = azure_with_test_clients(namespace, identities);
        let clients = azure.registry.test_clients.as_ref().unwrap();
        [
            clients.secret_client.to_string(),
            clients.secret.expose().to_owned(),
            clients.certificate_client.to_string(),
            clients.federated_client.to_string(),
            clients.user_object_id.to_string(),
            clients.user_password.expose().to_owned(),
        ]
    };
    let (one, other) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
    assert_eq!(credentials(one, 0), credentials(one, 1));
    for (first, second) in credentials(one, 0).iter().zip(credentials(other, 0)) {
        assert_ne!(*first, second);
    }
}

#[test]
fn the_administrator_owns_the_subscription_and_manages_the_directory() {
    let azure = azure_with_test_clients(uuid::Uuid::from_u128(1), 0);
    let clients = azure.registry.test_clients.as_ref().unwrap();
    let user = azure.directory.user_by_name("admin@lanyard.test").unwrap();
    assert_eq!((user.object_id, &user.tenant), (clients.user_object_id, &clients.tenant));
    assert!(azure.directory.tenant("lanyard.test").is_some_and(|it| it.id == clients.tenant));
    let roles = azure.directory.directory_roles_of(user.object_id);
    assert_eq!(roles, [lanyard_emulator_state::directory::DirectoryRole::GlobalAdministrator]);
    let assignments: Vec<_> = azure.authorization.of_principal(user.object_id).collect();
    assert_eq!(assignments.len(), 1);
    assert_eq!(assignments[0].principal_type, "User");
    assert_eq!(assignments[0].scope.to_string(), "/subscriptions/sub");
}

#[test]
fn the_identity_of_the_machine_reads_a_subscription_of_its_own_tenant() {
    let azure = azure_with_test_clients(uuid::Uuid::from_u128(1), 0);
    let plan = nine_identity_plan();
    let reader = azure.directory.service_principal_by_client_id(plan.vault_reader_client_id);
    let reader = reader.unwrap().object_id;
    let own = azure.resources.subscriptions.iter().find(|it| it.tenant == plan.vault.tenant);
    let scope = format!("/subscriptions/{}", own.unwrap().id);
    assert!(azure.authorization.of_principal(reader).any(|it| it.scope.to_string() == scope));
}
