use std::str::FromStr;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use lanyard_clock::Clock as _;
use lanyard_vocabulary::{ClientId, Cloud, ObjectEncoding};
use p12_keystore::Pkcs12Archive;
use serde_json::Value;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::*;
use crate::drill::{Drill, Fault};
use crate::services::keyvault::{CurvePoint, KeyContent, SecretContent, VaultKey, Version};
use crate::testing::Probe;
use crate::token::{Grant, Proof, issue};

/// `crate::testing::epoch`.
pub(crate) const NOW: Timestamp = Timestamp::constant(1_795_262_400, 0);

fn parse<T: FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

/// Nine identities, every bundle with every encoding.
pub(crate) fn plan() -> WorldPlan {
    let group = "/subscriptions/sub/resourceGroups";
    let vnet = format!("{group}/demo-vnet-abcde/providers/Microsoft.Network/virtualNetworks/vnet");
    let bundles = [Bundle::Pem, Bundle::LegacyPkcs12, Bundle::ModernPkcs12];
    let identity = |(at, component): (usize, Component)| IdentityPlan {
        component,
        client_id: None,
        secret_name: parse(&format!("demo-{}", component.facts().secret_suffix)),
        encoding: ObjectEncoding::ALL[at % 3],
        bundle: bundles[at / 3],
    };
    WorldPlan {
        tenant: parse("11111111-1111-4111-8111-111111111111"),
        subscription: parse("sub"),
        cloud: Cloud::Public,
        location: "eastus".to_owned(),
        managed_resource_group: "demo-abcde".to_owned(),
        subnet_id: parse(&format!("{vnet}/subnets/default")),
        vnet_id: parse(&vnet),
        security_group_id: parse(&format!(
            "{group}/demo-nsg-abcde/providers/Microsoft.Network/networkSecurityGroups/nsg"
        )),
        dns_zone: DnsZonePlan { name: "example.test".to_owned(), resource_group: "dns".to_owned() },
        infra_id: parse("demo-abcde"),
        vault: VaultPlan {
            name: parse("Platform-kv"),
            tenant: parse("22222222-2222-4222-8222-222222222222"),
        },
        kms_key: Some(KmsKeyPlan { vault: parse("demo-kms"), name: parse("etcd"), version: None }),
        vault_reader_client_id: parse("33333333-3333-4333-8333-333333333333"),
        identities: Component::ALL.into_iter().enumerate().map(identity).collect(),
        drills: Vec::new(),
        guests: false,
    }
}

/// A world with all nine identities; keys are slow to make, so every test clones the same.
pub(crate) fn nine() -> (World, Ids) {
    static NINE: LazyLock<(World, Ids)> = LazyLock::new(|| {
        let mut plan = plan();
        plan.vault.tenant = plan.tenant.clone();
        plan.guests = true;
        seeded(&plan)
    });
    NINE.clone()
}

/// An access token of a principal, as the token service issues it.
pub(crate) fn token(probe: &Probe, client: ClientId, resource: &str) -> String {
    let state = &mut *probe.engine.state();
    let principal = state.world.directory.by_client(client).unwrap();
    let tenant = state.world.directory.tenant(principal.tenant.as_str()).unwrap();
    let grant = Grant { principal, resource, proof: Proof::Key, cloud: Cloud::Public };
    let issued =
        issue(state.world.tokens, tenant, grant, probe.clock.now(), &mut state.ids).unwrap();
    issued.token.expose().to_owned()
}

pub(crate) fn seeded(plan: &WorldPlan) -> (World, Ids) {
    let mut world = World::default();
    let mut ids = Ids::Seeded { namespace: uuid::Uuid::NAMESPACE_DNS, count: 0 };
    apply_plan(plan, &mut world, &mut ids, NOW).unwrap();
    (world, ids)
}

fn only(component: Component, change: impl FnOnce(&mut WorldPlan)) -> WorldPlan {
    let mut plan = plan();
    plan.identities.retain(|identity| identity.component == component);
    plan.kms_key = None;
    change(&mut plan);
    plan
}

fn secret(world: &World, component: Component) -> &Version<SecretContent> {
    let holder = world.roster.holder(component).unwrap();
    let vault = world.vaults.at_host(&holder.vault_host).unwrap();
    vault.secrets.version(holder.secret_name.as_str(), None).unwrap().1
}

fn decode(encoding: ObjectEncoding, text: &str) -> Vec<u8> {
    match encoding {
        ObjectEncoding::Utf8 => text.as_bytes().to_vec(),
        ObjectEncoding::Hex => hex::decode(text).unwrap(),
        ObjectEncoding::Base64 => STANDARD.decode(text).unwrap(),
    }
}

fn document(world: &World, component: Component) -> Value {
    let holder = world.roster.holder(component).unwrap();
    let text = decode(holder.encoding, secret(world, component).content.value.expose());
    serde_json::from_slice(&text).unwrap()
}

/// The key (PKCS#8) and the certificates of a document, leaf first.
fn material(document: &Value, bundle: Bundle) -> (Vec<u8>, Vec<Vec<u8>>) {
    let bytes = STANDARD.decode(document["client_secret"].as_str().unwrap()).unwrap();
    if bundle == Bundle::Pem {
        let text = String::from_utf8(bytes).unwrap();
        let block = |label: &str, at: usize| {
            let begin = format!("-----BEGIN {label}-----\n");
            let body = text.split(&begin).nth(at).unwrap().split("-----END").next().unwrap();
            STANDARD.decode(body.replace('\n', "")).unwrap()
        };
        return (block("PRIVATE KEY", 1), vec![block("CERTIFICATE", 1), block("CERTIFICATE", 2)]);
    }
    let archive = Pkcs12Archive::from_pkcs12(&bytes, "").unwrap();
    let key = archive.keys[0].key.as_der().to_vec();
    (key, archive.certs.iter().map(|bag| bag.cert.as_der().to_vec()).collect())
}

#[test]
fn every_component_gets_a_document_with_all_thirteen_keys() {
    let (world, _) = seeded(&plan());
    for component in Component::ALL {
        let document = document(&world, component);
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
        let holder = world.roster.holder(component).unwrap();
        assert_eq!(document["client_id"], holder.client_id.to_string());
        assert_eq!(document["authentication_endpoint"], "https://login.microsoftonline.com/");
        for stamp in ["not_before", "not_after", "renew_after", "cannot_renew_after"] {
            let text = document[stamp].as_str().unwrap();
            assert!(text.parse::<Timestamp>().is_ok() && text.ends_with('Z'), "{stamp}: {text}");
        }
        let attributes = secret(&world, component).attributes;
        assert_eq!(attributes.not_before.unwrap().to_string(), document["not_before"]);
        assert_eq!(attributes.expires.unwrap().to_string(), document["not_after"]);
        assert_eq!(secret(&world, component).tags["renew_after"], document["renew_after"]);
    }
}

#[test]
fn certificates_come_from_the_authority_and_match_their_keys_in_every_bundle() {
    let (world, _) = seeded(&plan());
    let authority = &world.directory.authorities[tenants::MSI_AUTHORITY];
    let (_, authority) = X509Certificate::from_der(&authority.certificate).unwrap();
    for component in Component::ALL {
        let holder = world.roster.holder(component).unwrap();
        let (key, chain) = material(&document(&world, component), holder.bundle);
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
fn a_rotation_writes_a_new_version_with_a_later_stamp_and_another_key() {
    let (mut world, mut ids) = seeded(&only(Component::Disk, |_| {}));
    let before = document(&world, Component::Disk);
    let first = issue_certificate(&mut world, Component::Disk, &mut ids, NOW, 0).unwrap();
    let later = NOW + SignedDuration::from_hours(24 * 46);
    let second = issue_certificate(&mut world, Component::Disk, &mut ids, later, 0).unwrap();
    let after = document(&world, Component::Disk);
    assert!(first.not_before < second.not_before);
    assert_ne!(before["client_secret"], after["client_secret"]);
    assert_eq!(after["not_before"], second.not_before.to_string());
    assert_eq!(secret(&world, Component::Disk).id, second.version);
    assert!(first.not_before.to_string().as_str() > before["not_before"].as_str().unwrap());
}

#[test]
fn padding_grows_the_document_until_the_vault_refuses_it() {
    let (mut world, mut ids) = seeded(&only(Component::CloudProvider, |_| {}));
    let mut issue =
        |padding| issue_certificate(&mut world, Component::CloudProvider, &mut ids, NOW, padding);
    let plain = issue(0).unwrap().bytes;
    assert!((4_000..9_000).contains(&plain), "{plain}");
    let padded = issue(10_000).unwrap().bytes;
    // Keys and signatures of another certificate may be some bytes shorter.
    assert!(padded + 64 >= plain + 10_000, "{padded} after {plain}");
    assert!(matches!(issue(30_000), Err(SeedError::TooLarge { .. })));
}

#[test]
fn drills_of_the_value_break_what_they_say() {
    let broken = |fault| {
        let drill = Drill { fault, component: Component::CloudProvider };
        seeded(&only(Component::CloudProvider, |plan| plan.drills.push(drill))).0
    };
    let component = Component::CloudProvider;
    let encoded = broken(Fault::Encoding);
    let text = secret(&encoded, component).content.value.expose();
    assert!(serde_json::from_str::<Value>(text).is_err());
    assert!(serde_json::from_slice::<Value>(&STANDARD.decode(text).unwrap()).is_ok());

    let expired = broken(Fault::Expired);
    let claims = document(&expired, component);
    let (_, chain) = material(&claims, Bundle::Pem);
    let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
    assert!(leaf.validity().not_after.timestamp() < NOW.as_second());
    assert!(claims["not_after"].as_str().unwrap().parse::<Timestamp>().unwrap() > NOW);

    let (key, chain) = material(&document(&broken(Fault::KeyMismatch), component), Bundle::Pem);
    let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
    let public = RsaKey::from_pkcs8(key).public_der().unwrap();
    assert_ne!(leaf.public_key().subject_public_key.data.as_ref(), public);

    let audience = document(&broken(Fault::Audience), component);
    assert_eq!(audience["authentication_endpoint"], "https://sts.windows.net/");
}

#[test]
fn a_plan_is_judged_completely_before_anything_is_made() {
    let mut plan = plan();
    plan.cloud = Cloud::Stack;
    plan.subnet_id = plan.vnet_id.clone();
    plan.guests = true;
    plan.vault.name = parse("Guests-demo-abcde");
    plan.identities[0].client_id = Some(parse("44444444-4444-4444-8444-444444444444"));
    plan.identities[1].client_id = Some(parse("55555555-5555-4555-8555-555555555555"));
    plan.identities[1].secret_name = parse("DEMO-cloud-provider");
    plan.identities[2].client_id = Some(plan.vault_reader_client_id);
    plan.identities[3].component = Component::Kms;
    plan.drills.push(Drill { fault: Fault::Expired, component: Component::ImageRegistry });
    let fields: Vec<_> = plan.problems().into_iter().map(|problem| problem.field).collect();
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
    let mut world = World::default();
    let refused = apply_plan(&plan, &mut world, &mut Ids::Random, NOW).unwrap_err();
    assert!(matches!(&refused, SeedError::Plan { problems } if problems.len() == 8));
    assert!(refused.hint().is_some());
    assert!(world.directory.tenants.is_empty());
}

#[test]
fn resource_groups_that_are_one_get_one_assignment() {
    let plan = only(Component::File, |plan| {
        let group = "/subscriptions/sub/resourceGroups/DEMO-abcde/providers/Microsoft.Network";
        plan.vnet_id = parse(&format!("{group}/virtualNetworks/v"));
        plan.subnet_id = parse(&format!("{group}/virtualNetworks/v/subnets/s"));
        plan.security_group_id = parse(&format!("{group}/networkSecurityGroups/n"));
    });
    let (world, _) = seeded(&plan);
    let holder = world.roster.holder(Component::File).unwrap();
    assert_eq!(world.authorization.of_principal(holder.object_id).count(), 1);
}

#[test]
fn components_with_one_secret_or_one_client_id_are_one_identity() {
    let mut plan = plan();
    let client: ClientId = parse("44444444-4444-4444-8444-444444444444");
    plan.kms_key = None;
    plan.identities.truncate(3);
    let (first, rest) = plan.identities.split_first_mut().unwrap();
    first.encoding = rest[0].encoding;
    first.secret_name = parse("DEMO-SHARED");
    rest[0].secret_name = parse("demo-shared");
    rest[0].client_id = Some(client);
    rest[1].client_id = Some(client);
    assert_eq!(plan.problems(), []);
    let (mut world, mut ids) = seeded(&plan);
    let holders = world.roster.holders.clone();
    assert!(holders.iter().all(|holder| holder.client_id == client));
    let principals = world.directory.principals.iter();
    assert_eq!(principals.filter(|known| known.client_id == client).count(), 1);
    let vault = world.vaults.at_host(&holders[0].vault_host).unwrap();
    assert_eq!(
        vault.secrets.version("demo-shared", None).unwrap().1.id,
        secret(&world, holders[1].component).id
    );

    let first = issue_certificate(&mut world, holders[0].component, &mut ids, NOW, 0).unwrap();
    let second = issue_certificate(&mut world, holders[1].component, &mut ids, NOW, 0).unwrap();
    assert!(first.not_before < second.not_before, "one secret, one order of its credentials");
    let drill = Drill { fault: Fault::Encoding, component: holders[0].component };
    drill::apply_drill(&mut world, drill, &mut ids, NOW).unwrap();
    issue_certificate(&mut world, holders[1].component, &mut ids, NOW, 0).unwrap();
    let text = secret(&world, holders[1].component).content.value.expose();
    let wrongly = STANDARD.decode(text).unwrap();
    assert!(serde_json::from_slice::<Value>(&wrongly).is_ok(), "the fault is of the secret");
}

#[test]
fn networks_may_be_in_another_subscription_and_the_subnet_in_another_network() {
    let plan = only(Component::Network, |plan| {
        let network = "/subscriptions/hub/resourceGroups/net/providers/Microsoft.Network";
        plan.vnet_id = parse(&format!("{network}/virtualNetworks/first"));
        plan.subnet_id = parse(&format!("{network}/virtualNetworks/second/subnets/s"));
    });
    assert_eq!(plan.problems(), []);
    let (world, _) = seeded(&plan);
    let resources = &world.resources;
    assert_eq!(resources.subscription("hub").unwrap().tenant, plan.tenant);
    let group = "/subscriptions/hub/resourceGroups/net";
    let second = format!("{group}/providers/Microsoft.Network/virtualNetworks/second");
    for id in [group, second.as_str(), plan.vnet_id.as_str(), plan.subnet_id.as_str()] {
        assert!(resources.resource(&parse(id)).is_some(), "{id}");
    }
    let holder = world.roster.holder(Component::Network).unwrap();
    let scopes: Vec<_> = world
        .authorization
        .of_principal(holder.object_id)
        .map(|held| held.scope.to_string())
        .collect();
    assert!(scopes.iter().any(|scope| scope == group), "{scopes:?}");
}

#[test]
fn the_vault_of_the_guests_has_a_valid_name_whatever_the_infrastructure_id() {
    let cases = [
        ("demo-abcde", "guests-demo-abcde"),
        ("A-name.much--longer-than-17-x1y2z", "guests-ger-than-17-x1y2z"),
        ("aaaa-1234567890123456-", "guests-1234567890123456"),
        ("...", "guests"),
    ];
    for (infra_id, expected) in cases {
        let plan = WorldPlan { infra_id: parse(infra_id), ..plan() };
        assert_eq!(plan.guest_vault().unwrap().as_str(), expected, "{infra_id}");
        assert!(expected.len() <= 24);
    }
}

#[test]
fn guests_are_of_the_tenant_of_the_subscription_even_if_the_vault_is_of_another() {
    let plan = WorldPlan { guests: true, ..only(Component::Disk, |_| {}) };
    assert_ne!(plan.tenant, plan.vault.tenant);
    let (world, _) = seeded(&plan);
    let guests = world.roster.guests.as_ref().unwrap();
    let vault = world.vaults.at_host(&guests.vault_host).unwrap();
    assert_eq!(vault.settings.tenant, plan.tenant);
    for client in [guests.secret_client, guests.certificate_client, guests.federated_client] {
        assert_eq!(world.directory.by_client(client).unwrap().tenant, plan.tenant);
    }
    let id = "/subscriptions/sub/resourceGroups/demo-abcde/providers/Microsoft.KeyVault/vaults/guests-demo-abcde";
    assert!(world.resources.resource(&parse(id)).is_some());
}

#[test]
fn a_plan_survives_its_wire_form_with_the_documented_names() {
    let mut plan = plan();
    plan.drills.push(Drill { fault: Fault::MissingSecret, component: Component::Kms });
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<WorldPlan>(&text).unwrap(), plan);
    assert!(text.contains(r#""drills":[{"fault":"missing-secret","component":"kms"}]"#), "{text}");
    assert!(text.contains(r#""bundle":"legacy-pkcs12""#), "{text}");
}

#[test]
fn guests_get_a_signed_subject_token_and_their_vault_objects() {
    let (world, mut ids) = nine();
    let guests = world.roster.guests.clone().unwrap();
    let token =
        mint_federated_token(&world, &guests.subject, &guests.audience, &mut ids, NOW).unwrap();
    assert_eq!(token.expose().split('.').count(), 3);
    assert!(world.directory.by_client(guests.federated_client).is_some());
    let vault = world.vaults.at_host(&guests.vault_host).unwrap();
    assert!(vault.certificates.version("guest-certificate", None).is_ok());
    for (name, curve, digits) in [
        ("guest-key-p256", "P-256", 43),
        ("guest-key-p384", "P-384", 64),
        ("guest-key-p521", "P-521", 88),
    ] {
        let (_, version) = vault.keys.version(name, None).unwrap();
        let VaultKey::Curve(point) = &version.content.key else { panic!("{name} is no curve") };
        let CurvePoint { crv, x, y } = point;
        assert_eq!((crv.as_str(), x.len(), y.len()), (curve, digits, digits), "{name}");
        let stored = serde_json::to_string(&version.content).unwrap();
        let read: KeyContent = serde_json::from_str(&stored).unwrap();
        assert!(matches!(read.key, VaultKey::Curve(read) if read == *point), "{name}");
    }
    let unseeded = World::default();
    let refused = mint_federated_token(&unseeded, "s", "a", &mut ids, NOW).unwrap_err();
    assert!(matches!(refused, MintError::NoIssuer));
    let client: ClientId = guests.certificate_client;
    assert_eq!(world.directory.by_client(client).unwrap().certificates.len(), 1);
}

#[test]
fn no_private_key_can_be_printed() {
    let (world, _) = nine();
    let printed = format!("{world:?}");
    assert!(!printed.contains("PRIVATE KEY"), "a key is printed");
    let document = secret(&world, Component::Disk).content.value.expose();
    assert!(!printed.contains(&document[100..200]), "a secret is printed");
}
