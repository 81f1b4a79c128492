use super::*;

const CLIENT: &str = "11111111-2222-3333-4444-555555555555";
const OBJECTS: &str = "array:\n  - |\n    objectName: cpo\n    objectType: secret\n";

fn valid_parameters_with(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let base = [("keyvaultName", "hcp-vault"), ("tenantID", "tenant"), ("objects", OBJECTS)];
    base.iter().chain(pairs).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn problem_fields(parameters: &BTreeMap<String, String>) -> Vec<String> {
    let problems = ProviderParameters::parse(parameters).unwrap_err();
    problems.problems().iter().map(ParameterProblem::field).collect()
}

#[test]
fn the_identity_mode_follows_the_switches_and_the_client_id() {
    let client_id: EntraClientId = CLIENT.parse().unwrap();
    let cases: [(&[(&str, &str)], IdentityMode); 8] = [
        (&[], IdentityMode::ServicePrincipal),
        (&[("clientID", CLIENT)], IdentityMode::WorkloadIdentity { client_id }),
        (&[("usePodIdentity", "T")], IdentityMode::PodIdentity),
        (&[("useVMManagedIdentity", " True ")], IdentityMode::ManagedIdentity { client_id: None }),
        (
            &[("useVMManagedIdentity", "1"), ("userAssignedIdentityID", CLIENT)],
            IdentityMode::ManagedIdentity { client_id: Some(client_id) },
        ),
        (
            &[("useVMManagedIdentity", "true"), ("clientID", CLIENT)],
            IdentityMode::ManagedIdentity { client_id: None },
        ),
        (
            &[("useAzureTokenProxy", "TRUE"), ("clientID", CLIENT)],
            IdentityMode::IdentityBinding { client_id },
        ),
        (
            &[("usePodIdentity", ""), ("userAssignedIdentityID", CLIENT)],
            IdentityMode::ServicePrincipal,
        ),
    ];
    for (pairs, expected) in cases {
        let parsed = ProviderParameters::parse(&valid_parameters_with(pairs)).unwrap();
        assert_eq!(parsed.identity, expected, "{pairs:?}");
    }
}

#[test]
fn switches_are_read_as_go_reads_booleans() {
    for text in ["1", "t", "T", "TRUE", "true", "True"] {
        let parsed =
            ProviderParameters::parse(&valid_parameters_with(&[("usePodIdentity", text)])).unwrap();
        assert_eq!(parsed.identity, IdentityMode::PodIdentity, "{text}");
    }
    for text in ["0", "f", "F", "FALSE", "false", "False", ""] {
        let parsed =
            ProviderParameters::parse(&valid_parameters_with(&[("usePodIdentity", text)])).unwrap();
        assert_eq!(parsed.identity, IdentityMode::ServicePrincipal, "{text}");
    }
    for text in ["yes", "no", "tRUE", "2", "on"] {
        assert_eq!(
            problem_fields(&valid_parameters_with(&[("usePodIdentity", text)])),
            ["usePodIdentity"],
            "{text}"
        );
    }
}

#[test]
fn identity_modes_exclude_each_other() {
    let parameters =
        valid_parameters_with(&[("usePodIdentity", "true"), ("useVMManagedIdentity", "true")]);
    let problems = ProviderParameters::parse(&parameters).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "only one identity mode can be used, and usePodIdentity and useVMManagedIdentity are true"
    );
}

#[test]
fn the_token_proxy_needs_a_client_id() {
    assert_eq!(
        problem_fields(&valid_parameters_with(&[("useAzureTokenProxy", "true")])),
        ["clientID"]
    );
}

#[test]
fn the_documented_tenant_key_wins_unless_it_is_blank() {
    let tenant = |pairs: &[(&str, &str)]| {
        ProviderParameters::parse(&valid_parameters_with(pairs)).unwrap().tenant.as_str().to_owned()
    };
    assert_eq!(tenant(&[("tenantID", "one"), ("tenantId", "two")]), "one");
    assert_eq!(tenant(&[("tenantID", "  "), ("tenantId", " two ")]), "two");
    assert_eq!(tenant(&[("tenantID", "adfs")]), "adfs");
}

#[test]
fn keys_are_case_sensitive_and_the_hint_names_the_near_miss() {
    let mut parameters = valid_parameters_with(&[("keyVaultName", "kv1")]);
    parameters.remove("keyvaultName");
    let problems = ProviderParameters::parse(&parameters).unwrap_err();
    assert_eq!(
        problems.problems()[0].hint().unwrap(),
        "keys are case-sensitive: rename `keyVaultName` to `keyvaultName`"
    );
}

#[test]
fn every_problem_is_reported_at_once() {
    let parameters = valid_parameters_with(&[
        ("usePodIdentity", "maybe"),
        ("keyvaultName", "k_v"),
        ("tenantID", ""),
        ("cloudName", "Azure"),
        ("objects", "array:\n  - |\n    objectName: a_b\n    objectType: Secret\n  - x: y\n"),
    ]);
    assert_eq!(
        problem_fields(&parameters),
        [
            "usePodIdentity",
            "keyvaultName",
            "tenantID",
            "cloudName",
            "objects[0].objectName",
            "objects[0].objectType",
            "objects[1]",
        ]
    );
}

#[test]
fn the_cloud_is_read_in_any_case_and_stays_open_when_it_is_not_named() {
    let cloud = |text| {
        ProviderParameters::parse(&valid_parameters_with(&[("cloudName", text)])).unwrap().cloud
    };
    assert_eq!(cloud(""), None);
    assert_eq!(cloud("azurepubliccloud"), Some(Cloud::Public));
    assert_eq!(cloud("AzureUSGovernment"), Some(Cloud::UsGovernment));
}

#[test]
fn a_managed_identity_writes_exactly_six_parameters() {
    let parameters = ProviderParameters {
        identity: IdentityMode::ManagedIdentity { client_id: CLIENT.parse().ok() },
        vault_name: "hcp-vault".parse().unwrap(),
        tenant: "vault-tenant".parse().unwrap(),
        cloud: None,
        cloud_env_file: None,
        objects: vec![VaultObjectEntry::secret(
            "cpo".parse().unwrap(),
            Some(lanyard_vocabulary::ObjectEncoding::Hex),
        )],
    };
    let expected = [
        ("keyvaultName", "hcp-vault"),
        (
            "objects",
            "\narray:\n  - |\n    objectName: cpo\n    objectEncoding: hex\n    objectType: secret\n",
        ),
        ("tenantId", "vault-tenant"),
        ("usePodIdentity", "false"),
        ("useVMManagedIdentity", "true"),
        ("userAssignedIdentityID", CLIENT),
    ];
    let written = parameters.to_parameters();
    let pairs: Vec<_> = written.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(pairs, expected);

    let abroad = ProviderParameters { cloud: Some(Cloud::China), ..parameters };
    assert_eq!(abroad.to_parameters()["cloudName"], "AzureChinaCloud");
}
