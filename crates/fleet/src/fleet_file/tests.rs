use super::*;

const CLUSTER: &str =
    "/subscriptions/s/resourceGroups/aks/providers/Microsoft.ContainerService/managedClusters";
const VAULT: &str =
    "/subscriptions/v/resourceGroups/kv/providers/Microsoft.KeyVault/vaults/kv-shop";

fn document(clusters: &str, applications: &str) -> String {
    format!(
        "apiVersion: lanyard.dev/v1alpha1\nkind: Fleet\nmetadata: {{ name: shop }}\n\
         defaults: {{ identityResourceGroup: shop-identities, tags: {{ team: shop }} }}\n\
         clusters: {clusters}\napplications: {applications}\n"
    )
}

fn one_cluster() -> String {
    format!("[{{ name: weu-1, id: {CLUSTER}/weu-1, labels: {{ stage: canary }} }}]")
}

fn one_application() -> String {
    format!(
        "[{{ name: web, namespace: shop, keyVault: {{ id: {VAULT}, secrets: [db-password] }} }}]"
    )
}

fn parse(text: &str) -> Result<Fleet, Vec<String>> {
    let variable = |name: &str| (name == "REGION").then(|| "westeurope".to_owned());
    Fleet::parse(text, variable).map_err(|error| match error {
        ParseFleetError::Malformed(problem) => vec![problem],
        ParseFleetError::Values(problems) => problems,
    })
}

#[test]
fn smallest_file_has_these_defaults() {
    let fleet = parse(&document(&one_cluster(), &one_application())).unwrap();
    let [cluster] = &fleet.clusters[..] else { panic!() };
    assert_eq!(cluster.identities.subscription.as_str(), "s");
    assert_eq!(cluster.identities.resource_group, "shop-identities");
    assert_eq!(cluster.identities.location, None);
    assert_eq!(cluster.oidc_issuer, crate::OidcIssuerMode::Require);
    let [application] = &fleet.applications[..] else { panic!() };
    assert_eq!(application.subject(), "system:serviceaccount:shop:web");
    assert_eq!(application.audience, "api://AzureADTokenExchange");
    assert_eq!(application.identity_name(&fleet.name, &cluster.name), "shop-web-weu-1");
    let access = application.secrets_on(cluster).unwrap();
    assert_eq!(access.subscription.as_str(), "v");
    assert_eq!(access.names[0].as_str(), "db-password");
}

#[test]
fn cluster_has_its_own_values_before_the_defaults() {
    let clusters = format!(
        "[{{ name: weu-1, id: {CLUSTER}/weu-1, identitySubscription: other, \
         identityResourceGroup: own, location: \"${{env.REGION}}\", oidcIssuer: enable, tags: {{}} }}]"
    );
    let fleet = parse(&document(&clusters, &one_application())).unwrap();
    let cluster = &fleet.clusters[0];
    assert_eq!(cluster.identities.subscription.as_str(), "other");
    assert_eq!(cluster.identities.resource_group, "own");
    assert_eq!(cluster.identities.location.as_deref(), Some("westeurope"));
    assert!(cluster.identities.tags.is_empty());
    assert_eq!(cluster.oidc_issuer, crate::OidcIssuerMode::Enable);
}

#[test]
fn last_overlay_for_a_cluster_replaces_its_secrets() {
    let clusters = format!(
        "[{{ name: weu-1, id: {CLUSTER}/weu-1, labels: {{ stage: canary }} }}, \
         {{ name: neu-1, id: {CLUSTER}/neu-1, labels: {{ stage: canary }} }}, \
         {{ name: weu-2, id: {CLUSTER}/weu-2 }}]"
    );
    let applications = format!(
        "[{{ name: web, namespace: shop, keyVault: {{ id: {VAULT}, secrets: [all] }}, overlays: [\
         {{ matchLabels: {{ stage: canary }}, keyVault: {{ id: {VAULT}, secrets: [canary] }} }}, \
         {{ matchLabels: {{ name: neu-1 }} }}] }}]"
    );
    let fleet = parse(&document(&clusters, &applications)).unwrap();
    let secrets: Vec<_> = fleet
        .clusters
        .iter()
        .map(|cluster| {
            let access = fleet.applications[0].secrets_on(cluster);
            access.map(|access| access.names[0].to_string())
        })
        .collect();
    assert_eq!(secrets, [Some("canary".to_owned()), None, Some("all".to_owned())]);
}

#[test]
fn every_unknown_field_is_named_with_the_nearest_one() {
    let clusters = format!("[{{ name: weu-1, id: {CLUSTER}/weu-1, oidcIsuer: enable }}]");
    let applications =
        format!("[{{ name: web, namspace: shop, keyVault: {{ id: {VAULT}, names: [x] }} }}]");
    let problems = parse(&document(&clusters, &applications)).unwrap_err();
    assert_eq!(
        problems,
        [
            "`applications[0].keyVault.names` is unknown; the fields are `id`, `secrets`",
            "`applications[0].namspace` is unknown; did you mean `namespace`?",
            "`clusters[0].oidcIsuer` is unknown; did you mean `oidcIssuer`?",
        ]
    );
}

#[test]
fn every_invalid_value_is_reported_with_its_path() {
    let clusters = format!(
        "[{{ name: Weu_1, id: {CLUSTER}/weu-1 }}, {{ name: weu-2, id: {VAULT}, labels: {{ name: x }} }}, \
         {{ name: weu-2, id: {CLUSTER}/weu-3, identityResourceGroup: \"a/b\" }}]"
    );
    let applications = format!(
        "[{{ name: web, namespace: shop, serviceAccount: \"a b\", keyVault: {{ id: {VAULT}, secrets: [a_b, x, x] }} }}]"
    );
    let problems = parse(&document(&clusters, &applications)).unwrap_err();
    let paths: Vec<_> = problems.iter().map(|problem| problem.split('`').nth(1).unwrap()).collect();
    assert_eq!(
        paths,
        [
            "clusters",
            "clusters[0].name",
            "clusters[1].id",
            "clusters[1].labels",
            "clusters[2].identityResourceGroup",
            "applications[0].serviceAccount",
            "applications[0].keyVault.secrets",
            "applications[0].keyVault.secrets[0]",
        ],
        "{problems:?}"
    );
}

#[test]
fn two_workloads_never_share_an_identity() {
    let clusters =
        format!("[{{ name: weu-1, id: {CLUSTER}/weu-1 }}, {{ name: weu-2, id: {CLUSTER}/weu-2 }}]");
    let applications = "[{ name: web, namespace: shop, identityName: \"${fleet}-web\" }]";
    let problems = parse(&document(&clusters, applications)).unwrap_err();
    assert_eq!(
        problems,
        [
            "`applications[0].identityName` gives `web` on `weu-1` and `web` on `weu-2` the same identity `shop-web`"
        ]
    );
}

#[test]
fn misspelt_label_and_shared_service_account_are_reported() {
    let applications = format!(
        "[{{ name: web, namespace: shop, overlays: [{{ matchLabels: {{ stgae: canary }}, keyVault: {{ id: {VAULT}, secrets: [x] }} }}] }}, \
         {{ name: api, namespace: shop, serviceAccount: web }}]"
    );
    let text = document(&one_cluster(), &applications)
        + "rollout: { waves: [{ name: canary, matchLabels: { stage: canry } }, { name: rest }] }\n";
    let problems = parse(&text).unwrap_err();
    assert_eq!(
        problems,
        [
            "`rollout.waves[0].matchLabels` selects no cluster",
            "`applications[0].overlays[0].matchLabels` selects no cluster",
            "`applications[1].serviceAccount` is that of another application in the same namespace",
        ]
    );
}

#[test]
fn variables_must_be_set_and_must_not_be_secrets() {
    for (text, problem) in [
        ("${env.ABSENT}", "contains the variable `ABSENT`, which is not set"),
        (
            "${env.DB_PASSWORD}",
            "contains the variable `DB_PASSWORD`, whose name is that of a secret",
        ),
        ("a-${env.REGION", "contains `${env.` without `}`"),
    ] {
        let clusters = format!("[{{ name: weu-1, id: {CLUSTER}/weu-1, location: \"{text}\" }}]");
        let problems = parse(&document(&clusters, &one_application())).unwrap_err();
        let [found] = &problems[..] else { panic!("{problems:?}") };
        assert!(found.starts_with(&format!("`clusters[0].location` {problem}")), "{found}");
    }
}

#[test]
fn value_of_another_type_is_reported_with_its_path() {
    let problems = parse(&document(&one_cluster(), "[{ name: web, namespace: [shop] }]"));
    let problems = problems.unwrap_err();
    assert!(problems[0].starts_with("`applications[0].namespace`: invalid type"), "{problems:?}");
}
