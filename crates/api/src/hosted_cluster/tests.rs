use lanyard_vocabulary::Component;

use super::*;

const HEAD: &str = "apiVersion: hypershift.openshift.io/v1beta1\nkind: HostedCluster\n";

fn parse_with_header(text: &str) -> Result<HostedCluster, ReadHostedClusterError> {
    HostedCluster::parse_yaml(text)
}

fn azure_platform(cluster: HostedCluster) -> AzurePlatform {
    cluster.spec.unwrap().platform.unwrap().azure.unwrap()
}

#[test]
fn fields_deserialize_from_their_api_names() {
    let text = include_str!("../../../../examples/hostedcluster.yaml");
    let cluster = parse_with_header(text).unwrap();
    let spec = cluster.spec.clone().unwrap();
    let azure = azure_platform(cluster);
    let identities = azure.authentication.unwrap().managed_identities.unwrap();
    let control_plane = identities.control_plane.unwrap();
    assert_eq!(control_plane.identities.len(), 8);
    assert_eq!(control_plane.unknown, Map::new());
    assert_eq!(azure.unknown, Map::new());
    assert_eq!(identities.data_plane.unwrap().unknown, Map::new());
    let kms = spec.secret_encryption.unwrap().kms.unwrap().azure.unwrap();
    assert_eq!(kms.unknown, Map::new());
    assert!(kms.kms.unwrap().credentials_secret_name.is_some());
    assert!(spec.unknown.contains_key("etcd"), "{:?}", spec.unknown.keys());
}

#[test]
fn unknown_fields_survive_a_round_trip() {
    let text = format!(
        "{HEAD}metadata: {{name: c, namespace: n}}\nfuture: {{a: [1, true]}}\nspec:\n  x: y\n  platform:\n    azure:\n      resourceGroupName: oops\n      azureAuthenticationConfig:\n        managedIdentities:\n          controlPlane:\n            velero: {{clientID: a}}\n            disk: {{credentialsSecretName: d, more: 1}}\n"
    );
    let cluster = parse_with_header(&text).unwrap();
    let value = serde_json::to_value(&cluster).unwrap();
    assert_eq!(value["future"]["a"][1], true);
    let platform = &value["spec"]["platform"]["azure"];
    assert_eq!(platform["resourceGroupName"], "oops");
    let control_plane = &platform["azureAuthenticationConfig"]["managedIdentities"]["controlPlane"];
    assert_eq!(control_plane["velero"]["clientID"], "a");
    assert_eq!(control_plane["disk"]["more"], 1);
    let repeated: HostedCluster = serde_json::from_value(value).unwrap();
    assert_eq!(repeated, cluster);
}

#[test]
fn scalars_of_text_fields_keep_their_text() {
    let text = format!(
        "{HEAD}spec:\n  platform:\n    azure:\n      azureAuthenticationConfig:\n        managedIdentities:\n          controlPlane:\n            disk: {{credentialsSecretName: 0644, clientID: 1e5}}\n            file:\n"
    );
    let managed = azure_platform(parse_with_header(&text).unwrap())
        .authentication
        .unwrap()
        .managed_identities
        .unwrap();
    let identities = managed.control_plane.unwrap().identities;
    let disk = &identities[&Component::Disk];
    assert_eq!(disk.credentials_secret_name.as_deref(), Some("0644"));
    assert_eq!(disk.client_id.as_deref(), Some("1e5"));
    assert!(!identities.contains_key(&Component::File));
}

#[test]
fn other_documents_are_skipped_and_error_lines_stay_correct() {
    let text = format!(
        "kind: Secret\napiVersion: v1\n---\n{HEAD}metadata:\n  name: c\nspec:\n  infraID: i\n---\nkind: NodePool\n"
    );
    assert_eq!(parse_with_header(&text).unwrap().spec.unwrap().infra_id.as_deref(), Some("i"));
    let wrong = text.replace("infraID: i", "infraID: [i]");
    let error = parse_with_header(&wrong).unwrap_err();
    assert!(matches!(error, ReadHostedClusterError::InvalidField { line: 9, .. }), "{error:?}");
}

#[test]
fn a_text_without_exactly_one_hosted_cluster_is_refused() {
    let cases = [
        ("", "there is no HostedCluster, only: nothing"),
        (
            "- a\n- kind\n- HostedCluster\n",
            "there is no HostedCluster, only: a document without a kind on line 1",
        ),
        (
            "kind: NodePool\napiVersion: hypershift.openshift.io/v1beta1\nspec: {kind: HostedCluster}\n",
            "there is no HostedCluster, only: hypershift.openshift.io/v1beta1 NodePool",
        ),
        (
            "kind: HostedCluster\napiVersion: hypershift.openshift.io/v1alpha1\n",
            "the HostedCluster on line 1 has apiVersion `hypershift.openshift.io/v1alpha1`",
        ),
    ];
    for (text, expected) in cases {
        let error = parse_with_header(text).unwrap_err();
        assert_eq!(error.to_string(), expected, "{text:?}");
        assert!(error.hint().is_some());
    }
    let two = format!("{HEAD}---\n{HEAD}");
    assert_eq!(
        parse_with_header(&two).unwrap_err().to_string(),
        "there are 2 HostedClusters, on the lines 1, 3"
    );
}

#[test]
fn errors_name_the_place_and_what_was_found_there() {
    let error = parse_with_header("kind: HostedCluster\nspec: [\n").unwrap_err();
    assert!(matches!(error, ReadHostedClusterError::InvalidYaml { .. }), "{error:?}");
    let cases = [
        ("spec:\n  platform: text\n", "line 4, column 13: `spec.platform`: expected a mapping"),
        ("spec:\n  infraID: [a]\n", "line 4, column 12: `spec.infraID`: expected a string"),
        ("spec:\n  services: x\n", "line 4, column 13: `spec.services`: expected a list"),
        ("spec:\n  infraID: a\n  infraID: b\n", "line 5, column 3: `spec.infraID`: duplicate key"),
        (
            "spec:\n  services:\n    - {}\n    - service: [x]\n",
            "line 6, column 16: `spec.services[1].service`: expected a string",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(parse_with_header(&format!("{HEAD}{text}")).unwrap_err().to_string(), expected);
    }
}

#[test]
fn json_is_read_too() {
    let text = format!(
        "{{\"apiVersion\": \"{}\", \"kind\": \"{}\", \"spec\": {{\"infraID\": \"x\"}}}}",
        HostedCluster::API_VERSION,
        HostedCluster::KIND
    );
    assert_eq!(parse_with_header(&text).unwrap().spec.unwrap().infra_id.as_deref(), Some("x"));
}

#[test]
fn unquoted_scalars_are_reported_with_their_field() {
    let text = format!(
        "kind: Secret\n---\n{HEAD}metadata: {{name: 007, namespace: '8'}}\nspec:\n  fips: true\n  infraID: 1e5\n  capabilities: {{disabled: [on, Ingress]}}\n  platform:\n    azure:\n      azureAuthenticationConfig:\n        managedIdentities:\n          controlPlane:\n            disk: {{credentialsSecretName: 123, objectEncoding: hex}}\n"
    );
    let found = HostedCluster::unquoted_scalars(&text).unwrap();
    let found: Vec<_> =
        found.iter().map(|text| (text.field.as_str(), text.text.as_str())).collect();
    assert_eq!(
        found,
        [
            ("metadata.name", "007"),
            ("spec.infraID", "1e5"),
            ("spec.capabilities.disabled[0]", "on"),
            (
                "spec.platform.azure.azureAuthenticationConfig.managedIdentities.controlPlane.disk.credentialsSecretName",
                "123"
            ),
        ]
    );
    let example = include_str!("../../../../examples/hostedcluster.yaml");
    assert_eq!(HostedCluster::unquoted_scalars(example), Ok(vec![]));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "[\\PC\n]{0,120}", line in 0..40_usize) {
        drop(parse_with_header(&text));
        // A valid document with an invalid line in it.
        let example = include_str!("../../../../examples/hostedcluster.yaml");
        let mut lines: Vec<_> = example.lines().collect();
        lines.insert(line, &text);
        drop(HostedCluster::unquoted_scalars(&lines.join("\n")));
    }
}
