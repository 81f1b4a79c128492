//! Golden objects of every kind of cluster, and tables of rejected flags.

use azure_core::credentials::Secret;
use lanyard_api::HostedCluster;
use lanyard_desired::{HostedClusterValidationError, validate, validate_schema};
use lanyard_vocabulary::{Cloud, ObjectEncoding};
use serde_json::Value;

use super::*;
use crate::identity_files::{ControlPlaneIdentities, DataPlaneIdentities, WorkloadIdentities};
use crate::infra_output::ClusterIdentities;
use crate::infra_output_file::InfraOutput;

const SUBSCRIPTION: &str = "0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40";

fn client_id(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

fn network_id(group: &str, rest: &str) -> String {
    format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Network/{rest}"
    )
}

fn infra() -> InfraOutput {
    let text = serde_json::json!({
        "baseDomain": "hcp.example.com",
        "bootImageID": "",
        "infraID": "harbour-x7k2p",
        "region": "eastus",
        "resourceGroupName": "harbour-harbour-x7k2p",
        "publicZoneID": network_id("dns", "dnsZones/hcp.example.com"),
        "privateZoneID": network_id("harbour-harbour-x7k2p", "privateDnsZones/harbour.hcp.example.com"),
        "vnetID": network_id("harbour-vnet-harbour-x7k2p", "virtualNetworks/harbour-harbour-x7k2p"),
        "subnetID": network_id(
            "harbour-vnet-harbour-x7k2p",
            "virtualNetworks/harbour-harbour-x7k2p/subnets/default",
        ),
        "securityGroupID": network_id(
            "harbour-nsg-harbour-x7k2p",
            "networkSecurityGroups/harbour-harbour-x7k2p-nsg",
        ),
    });
    InfraOutput::parse(&text.to_string()).unwrap().0
}

fn workload_identities(with_kms: bool) -> ClusterIdentities {
    let ids = crate::workload_identities::workload_identities(with_kms)
        .enumerate()
        .map(|(number, it)| (it.component, client_id(number).parse().unwrap()));
    ClusterIdentities::Workload(WorkloadIdentities(ids.collect()))
}

fn managed_identities() -> ClusterIdentities {
    let components = crate::workload_identities::workload_identities(false);
    let mut control_plane: serde_json::Map<_, _> = components
        .zip(["utf-8", "hex", "base64"].into_iter().cycle())
        .enumerate()
        .map(|(number, (it, encoding))| {
            let identity = serde_json::json!({
                "clientID": client_id(number),
                "credentialsSecretName": format!("harbour-{}", it.component),
                "objectEncoding": encoding,
            });
            (it.component.name().to_owned(), identity)
        })
        .collect();
    control_plane.insert(
        "managedIdentitiesKeyVault".to_owned(),
        serde_json::json!({ "name": "harbour-identities", "tenantID": client_id(99) }),
    );
    let data_plane: serde_json::Map<_, _> = crate::workload_identities::DataPlaneIdentity::ALL
        .into_iter()
        .enumerate()
        .map(|(number, it)| (it.field().to_owned(), client_id(20 + number).into()))
        .collect();
    let control_plane = Value::Object(control_plane).to_string();
    let data_plane = Value::Object(data_plane).to_string();
    ClusterIdentities::Managed {
        control_plane: ControlPlaneIdentities::parse(&control_plane).unwrap().0,
        data_plane: Some(DataPlaneIdentities::parse(&data_plane).unwrap().0),
    }
}

fn account() -> ClusterAccount {
    ClusterAccount {
        subscription: SUBSCRIPTION.parse().unwrap(),
        tenant: client_id(98).parse().unwrap(),
    }
}

fn options() -> ClusterOptions {
    ClusterOptions {
        name: "harbour".parse().unwrap(),
        namespace: "clusters".parse().unwrap(),
        cloud: Cloud::Public,
        infra_id: None,
        base_domain: Some("hcp.example.com".parse().unwrap()),
        location: None,
        external_dns_domain: None,
        release_image: "quay.io/openshift-release-dev/ocp-release:4.22.1-multi".to_owned(),
        annotations: std::collections::BTreeMap::new(),
        labels: std::collections::BTreeMap::new(),
        control_plane_availability: AvailabilityPolicy::SingleReplica,
        infra_availability: None,
        etcd_storage_class: None,
        network_type: NetworkType::OvnKubernetes,
        cluster_ranges: vec!["10.132.0.0/14".parse().unwrap()],
        service_ranges: vec!["172.31.0.0/16".parse().unwrap()],
        fips: false,
        disabled_capabilities: Vec::new(),
        issuer_url: Some("https://harbour.blob.core.windows.net/harbour".to_owned()),
        has_signing_key: true,
        encryption_key: None,
        kms_secret: None,
        endpoint_access: EndpointAccess::Public,
        private_access: PrivateAccessOptions::default(),
        oauth_publishing: OAuthPublishing::Route,
        node_pools: NodePoolOptions {
            replicas: 2,
            architecture: NodeArchitecture::Amd64,
            instance_type: None,
            disk_size: 120,
            disk_storage: "Premium_LRS".to_owned(),
            ephemeral_disk: false,
            disk_encryption_set: None,
            host_encryption: None,
            subnet: None,
            zones: Vec::new(),
            zone: None,
            image_generation: None,
            marketplace: MarketplaceOptions::default(),
            diagnostics: DiagnosticsOptions::default(),
            upgrade_type: NodeUpgradeType::Replace,
            auto_repair: false,
        },
    }
}

fn secret_inputs() -> SecretInputs {
    SecretInputs {
        pull_secret: Secret::new("{\"auths\":{\"planted\":{}}}"),
        ssh_key: Some(SshKeyInput { public_key: "ssh-rsa AAAA".to_owned(), private_key: None }),
        signing_key: Some(Secret::new("planted signing key")),
        encryption_key: Secret::new("cGxhbnRlZA=="),
    }
}

fn changed(change: impl FnOnce(&mut ClusterOptions)) -> ClusterOptions {
    let mut options = options();
    change(&mut options);
    options
}

/// Renders the objects and checks that the rules of HyperShift's schema accept the HostedCluster.
fn manifests(options: ClusterOptions, identities: ClusterIdentities) -> ClusterManifests {
    let is_managed = matches!(identities, ClusterIdentities::Managed { .. });
    let parameters = HostedClusterParameters::new(options, account(), infra(), identities).unwrap();
    let manifests = parameters.manifests(secret_inputs());
    let wire: HostedCluster = serde_json::from_value(manifests.hosted_cluster.clone()).unwrap();
    let problems = validate_schema(&wire);
    assert!(problems.is_empty(), "{problems}");
    match validate(&wire) {
        Ok(validated) => assert!(is_managed && validated.lints.is_empty(), "{}", validated.lints),
        Err(HostedClusterValidationError::UnsupportedPlatform(_)) => assert!(!is_managed),
        Err(error) => panic!("{error}"),
    }
    manifests
}

fn yaml(options: ClusterOptions, identities: ClusterIdentities) -> String {
    manifests(options, identities).to_yaml(false).unwrap()
}

/// The documents of a kind.
fn documents(text: &str, kind: &str) -> String {
    let marker = format!("kind: {kind}\n");
    text.split("---\n").filter(|it| it.contains(&marker)).collect::<Vec<_>>().join("---\n")
}

#[test]
fn managed_cluster_with_secrets() {
    let manifests = manifests(options(), managed_identities());
    insta::assert_snapshot!(manifests.to_yaml(true).unwrap());
}

#[test]
fn self_managed_cluster() {
    insta::assert_snapshot!(yaml(options(), workload_identities(false)));
}

#[test]
fn private_cluster_with_external_dns() {
    let private = changed(|options| {
        options.endpoint_access = EndpointAccess::Private;
        options.external_dns_domain = Some("services.example.com".parse().unwrap());
        options.private_access = PrivateAccessOptions {
            nat_subnet: network_id("hub", "virtualNetworks/hub/subnets/nat").parse().ok(),
            additional_subscriptions: vec![client_id(50).parse().unwrap()],
        };
    });
    insta::assert_snapshot!(documents(&yaml(private, workload_identities(false)), "HostedCluster"));
}

#[test]
fn nat_subnet_of_the_infrastructure_is_the_default() {
    let mut infra = infra();
    let subnet = network_id("harbour-vnet-harbour-x7k2p", "virtualNetworks/v/subnets/nat");
    infra.nat_subnet = subnet.parse().ok();
    let private = changed(|options| options.endpoint_access = EndpointAccess::PublicAndPrivate);
    let parameters =
        HostedClusterParameters::new(private, account(), infra, workload_identities(false))
            .unwrap();
    let cluster = parameters.manifests(secret_inputs()).hosted_cluster;
    let azure = &cluster["spec"]["platform"]["azure"];
    assert_eq!(azure["private"]["privateLink"]["natSubnetID"], subnet.as_str());
    assert_eq!(azure["topology"], "PublicAndPrivate");
}

#[test]
fn vault_key_of_a_managed_cluster() {
    let encrypted = changed(|options| {
        options.encryption_key = "https://harbour-keys.vault.azure.net/keys/etcd/0a1b".parse().ok();
        options.kms_secret = "harbour-kms".parse().ok();
    });
    let manifests = manifests(encrypted, managed_identities());
    let encryption = &manifests.hosted_cluster["spec"]["secretEncryption"];
    insta::assert_snapshot!(serde_json::to_string_pretty(encryption).unwrap());
    let names: Vec<_> = manifests.secrets.iter().map(|it| it.name.as_str()).collect();
    assert!(!names.contains(&"harbour-etcd-encryption-key"), "{names:?}");
}

#[test]
fn managed_hsm_key_of_a_self_managed_cluster_in_every_cloud() {
    for cloud in Cloud::ALL {
        let Some(endpoints) = cloud.endpoints() else { continue };
        let encrypted = changed(|options| {
            let suffix = endpoints.managed_hsm_suffix;
            let key = format!("https://harbour-hsm.{suffix}/keys/etcd/0a1b");
            options.cloud = cloud;
            options.encryption_key = key.parse().ok();
        });
        let cluster = manifests(encrypted, workload_identities(true)).hosted_cluster;
        let azure = &cluster["spec"]["secretEncryption"]["kms"]["azure"];
        assert_eq!(azure["keyVaultType"], "ManagedHSM");
        assert_eq!(azure["workloadIdentity"]["clientID"], client_id(8));
        assert_eq!(cluster["spec"]["platform"]["azure"]["cloud"], cloud.name());
    }
}

#[test]
fn three_zones_have_a_node_pool_each() {
    let zones = changed(|options| {
        options.node_pools.zones = ["1", "2", "3"].map(|zone| zone.parse().unwrap()).to_vec();
    });
    insta::assert_snapshot!(documents(&yaml(zones, workload_identities(false)), "NodePool"));
}

#[test]
fn node_pool_with_every_option() {
    let everything = changed(|options| {
        let pools = &mut options.node_pools;
        pools.architecture = NodeArchitecture::Arm64;
        pools.zone = Some(AvailabilityZone::Two);
        pools.ephemeral_disk = true;
        pools.disk_encryption_set = format!(
            "/subscriptions/{SUBSCRIPTION}/resourceGroups/g/providers/Microsoft.Compute/diskEncryptionSets/d"
        )
        .parse()
        .ok();
        pools.host_encryption = Some(HostEncryption::Enabled);
        pools.subnet = network_id("g", "virtualNetworks/v/subnets/nodes").parse().ok();
        pools.image_generation = Some(ImageGeneration::Gen1);
        pools.marketplace = MarketplaceOptions {
            publisher: Some("azureopenshift".to_owned()),
            offer: Some("aro4".to_owned()),
            sku: Some("aro_417".to_owned()),
            version: Some("417.94.20240701".to_owned()),
        };
        pools.diagnostics = DiagnosticsOptions {
            storage: Some(DiagnosticsStorage::UserManaged),
            account_uri: Some("https://account.blob.core.windows.net/".to_owned()),
        };
        pools.upgrade_type = NodeUpgradeType::InPlace;
        pools.auto_repair = true;
    });
    insta::assert_snapshot!(documents(&yaml(everything, workload_identities(false)), "NodePool"));
}

#[test]
fn machine_image_is_that_of_the_flags_else_the_uploaded_one_else_that_of_the_release() {
    let image = |options: ClusterOptions, boot_image: Option<&str>| {
        let infra = InfraOutput { boot_image: boot_image.map(str::to_owned), ..infra() };
        let identities = workload_identities(false);
        let parameters =
            HostedClusterParameters::new(options, account(), infra, identities).unwrap();
        let pools = parameters.manifests(secret_inputs()).node_pools;
        pools[0]["spec"]["platform"]["azure"]["image"].clone()
    };
    let uploaded = image(options(), Some("id"));
    assert_eq!(uploaded, serde_json::json!({ "type": "ImageID", "imageID": "id" }));
    assert_eq!(image(options(), None), serde_json::json!({ "type": "AzureMarketplace" }));
    let generation =
        changed(|options| options.node_pools.image_generation = Some(ImageGeneration::Gen2));
    assert_eq!(image(generation, None)["azureMarketplace"]["imageGeneration"], "Gen2");
}

#[test]
fn oauth_server_has_a_load_balancer_with_the_external_name() {
    let load_balancer = changed(|options| {
        options.oauth_publishing = OAuthPublishing::LoadBalancer;
        options.external_dns_domain = Some("services.example.com".parse().unwrap());
    });
    let cluster = manifests(load_balancer, workload_identities(false)).hosted_cluster;
    insta::assert_snapshot!(serde_json::to_string_pretty(&cluster["spec"]["services"]).unwrap());
}

#[test]
fn negative_replicas_create_no_node_pool() {
    let none = changed(|options| options.node_pools.replicas = -1);
    assert!(manifests(none, workload_identities(false)).node_pools.is_empty());
}

#[test]
fn encoding_of_the_identity_file_is_kept() {
    let cluster = manifests(options(), managed_identities()).hosted_cluster;
    let identities = cluster
        .pointer("/spec/platform/azure/azureAuthenticationConfig/managedIdentities/controlPlane")
        .unwrap();
    let encodings: std::collections::BTreeSet<_> = identities
        .as_object()
        .unwrap()
        .values()
        .filter_map(|identity| identity["objectEncoding"].as_str())
        .collect();
    let all = ObjectEncoding::ALL.map(ObjectEncoding::name);
    assert_eq!(encodings, all.into_iter().collect());
}

#[test]
fn secrets_are_neither_printed_nor_rendered_without_the_flag() {
    let manifests = manifests(options(), workload_identities(false));
    let text = format!("{manifests:?}{}", manifests.to_yaml(false).unwrap());
    for planted in ["planted", "cGxhbnRlZ"] {
        assert!(!text.contains(planted), "{planted}: {text}");
    }
    assert!(manifests.to_yaml(true).unwrap().contains("cGxhbnRlZ"));
    let generated: Vec<_> = manifests.secrets.iter().filter(|it| it.is_generated).collect();
    assert_eq!(generated.len(), 1);
    assert_eq!(generated[0].name, "harbour-etcd-encryption-key");
}

#[test]
fn generated_encryption_keys_have_32_random_bytes() {
    let [one, other] = [(); 2].map(|()| generate_encryption_key().unwrap());
    assert_ne!(one.secret(), other.secret());
    assert_eq!(azure_core::base64::decode(one.secret()).unwrap().len(), 32);
}

fn problems_of(options: ClusterOptions, identities: ClusterIdentities) -> Vec<&'static str> {
    match HostedClusterParameters::new(options, account(), infra(), identities) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.0.iter().map(|it| it.flag).collect(),
    }
}

type OptionsChange = fn(&mut ClusterOptions);

#[test]
fn flags_that_do_not_fit_together_are_named() {
    let cases: [(&str, OptionsChange); 16] = [
        ("--infra-id", |it| it.infra_id = "other".parse().ok()),
        ("--base-domain", |it| it.base_domain = "other.example.com".parse().ok()),
        ("--location", |it| it.location = Some("westus".to_owned())),
        ("--external-dns-domain", |it| {
            it.external_dns_domain = "harbour.hcp.example.com".parse().ok();
        }),
        ("--external-dns-domain", |it| it.external_dns_domain = "example.com".parse().ok()),
        ("--endpoint-access-private-nat-subnet-id", |it| {
            it.endpoint_access = EndpointAccess::Private;
        }),
        ("--endpoint-access-private-nat-subnet-id", |it| {
            it.endpoint_access = EndpointAccess::PublicAndPrivate;
            it.private_access.additional_subscriptions = vec![client_id(50).parse().unwrap()];
        }),
        ("--endpoint-access-private-nat-subnet-id", |it| {
            it.private_access.nat_subnet =
                network_id("g", "virtualNetworks/v/subnets/s").parse().ok();
        }),
        ("--kms-credentials-secret-name", |it| it.kms_secret = "kms".parse().ok()),
        ("--workload-identities-file", |it| {
            it.encryption_key = "https://h-k.vault.azure.net/keys/etcd/0a1b".parse().ok();
        }),
        ("--availability-zone", |it| {
            it.node_pools.zone = Some(AvailabilityZone::One);
            it.node_pools.zones = vec![AvailabilityZone::Two];
        }),
        ("--availability-zones", |it| {
            it.node_pools.zones = vec![AvailabilityZone::Two, AvailabilityZone::Two];
        }),
        ("--marketplace-version", |it| {
            let text = || Some("x".to_owned());
            it.node_pools.marketplace =
                MarketplaceOptions { publisher: text(), offer: text(), sku: text(), version: None };
        }),
        ("--diagnostics-storage-account-uri", |it| {
            it.node_pools.diagnostics.account_uri = Some("https://a".to_owned());
        }),
        ("--root-disk-size", |it| it.node_pools.disk_size = 15),
        ("--nodepool-subnet-id", |it| {
            it.node_pools.subnet = network_id("g", "virtualNetworks/v").parse().ok();
        }),
    ];
    for (flag, change) in cases {
        assert_eq!(problems_of(changed(change), workload_identities(false)), [flag]);
    }
    assert!(problems_of(options(), workload_identities(false)).is_empty());
}

#[test]
fn flags_that_a_managed_cluster_cannot_have_are_named() {
    let oauth = changed(|options| options.oauth_publishing = OAuthPublishing::LoadBalancer);
    assert_eq!(problems_of(oauth, managed_identities()), ["--oauth-publishing-strategy"]);
    let encrypted = changed(|options| {
        options.encryption_key = "https://harbour-keys.vault.azure.net/keys/etcd/0a1b".parse().ok();
    });
    assert_eq!(problems_of(encrypted, managed_identities()), ["--kms-credentials-secret-name"]);
    let ClusterIdentities::Managed { control_plane, .. } = managed_identities() else {
        panic!("the identities are managed");
    };
    let incomplete = ClusterIdentities::Managed { control_plane, data_plane: None };
    assert_eq!(problems_of(options(), incomplete), ["--data-plane-identities-file"]);
}

#[test]
fn vault_key_of_another_cloud_is_rejected() {
    let encrypted = changed(|options| {
        options.cloud = Cloud::UsGovernment;
        options.encryption_key = "https://harbour-keys.vault.azure.net/keys/etcd/0a1b".parse().ok();
    });
    let problems = problems_of(encrypted, workload_identities(true));
    assert_eq!(problems, ["--encryption-key-id"]);
}

#[test]
fn private_cluster_needs_the_identity_of_the_control_plane_operator() {
    let ClusterIdentities::Workload(mut identities) = workload_identities(false) else {
        panic!("the identities are workload identities");
    };
    identities.0.remove(&lanyard_vocabulary::Component::ControlPlaneOperator);
    let private = changed(|options| {
        options.endpoint_access = EndpointAccess::Private;
        options.private_access.nat_subnet =
            network_id("hub", "virtualNetworks/hub/subnets/nat").parse().ok();
    });
    let problems = problems_of(private, ClusterIdentities::Workload(identities));
    assert_eq!(problems, ["--workload-identities-file"]);
}

#[test]
fn ranges_and_namespaces_are_checked() {
    for text in ["10.132.0.0/14", "fd01::/48"] {
        assert!(text.parse::<IpRange>().is_ok(), "{text}");
    }
    for text in ["10.132.0.0", "10.132.0.0/33", "x/8", "fd01::/129"] {
        assert!(text.parse::<IpRange>().is_err(), "{text}");
    }
    for text in ["Clusters", "", "a.b"] {
        assert!(text.parse::<KubernetesName>().is_err(), "{text}");
    }
}
