//! Tests of policies: evaluation, parsing, reload and suggestion.

use std::sync::Arc;

use lanyard_api::VaultObjectKind;
use proptest::prelude::*;

use super::*;

mod checked_provider;

const POLICY: &str = "\
apiVersion: lanyard.dev/v1alpha1
kind: NodePolicy
rules:
  - name: hosted-clusters
    namespaces: [ocm-*]
    identities: [11111111-2222-3333-4444-555555555555]
    vaults:
      - name: hcp-*
        objects: [secret/*]
  - name: ingress
    namespaces: [ingress, istio-*]
    classes: [wildcard-tls]
    vaults:
      - name: tls
        objects: [cert/wildcard, secret/wildcard]
";

fn client_identity() -> SharedIdentity {
    SharedIdentity::UserAssigned("11111111-2222-3333-4444-555555555555".parse().unwrap())
}

fn access(namespace: &str, class: &str, identity: SharedIdentity, what: &str) -> VaultAccess {
    let (vault, object) = what.split_once('/').unwrap();
    VaultAccess {
        namespace: namespace.to_owned(),
        class: class.to_owned(),
        identity,
        vault: vault.parse().unwrap(),
        object: VaultObjectName::parse(object).unwrap(),
    }
}

#[test]
fn first_rule_matching_every_field_allows() {
    let policy = NodePolicy::parse(POLICY).unwrap();
    let system = SharedIdentity::SystemAssigned;
    let cases = [
        (access("ocm-1", "disk", client_identity(), "hcp-1/secret/disk"), Some("hosted-clusters")),
        (access("ocm-1", "disk", client_identity(), "HCP-1/secret/DISK"), Some("hosted-clusters")),
        (access("ocm-1", "disk", system, "hcp-1/secret/disk"), None),
        (access("ocm-1", "disk", client_identity(), "hcp-1/key/disk"), None),
        (access("ocm-1", "disk", client_identity(), "other/secret/disk"), None),
        (access("default", "disk", client_identity(), "hcp-1/secret/disk"), None),
        (access("istio-a", "wildcard-tls", system, "tls/secret/wildcard"), Some("ingress")),
        (access("istio-a", "other", system, "tls/secret/wildcard"), None),
        (access("istio-a", "", system, "tls/secret/wildcard"), None),
    ];
    for (access, expected) in cases {
        assert_eq!(policy.evaluate(&access).rule(), expected, "{access:?}");
    }
}

#[test]
fn policy_without_rules_allows_nothing() {
    let policy = NodePolicy::default();
    let request = access("ocm-1", "disk", client_identity(), "hcp-1/secret/disk");
    assert_eq!(policy.evaluate(&request), PolicyVerdict::Unmatched);
}

#[test]
fn all_policy_problems_are_reported_with_their_fields() {
    let text = "\
apiVersion: lanyard.dev/v1
kind: Policy
rule: []
rules:
  - name: a b
    namespaces: []
    vaults: [{name: kv, objects: [secrets/x, secret/y, 7]}]
  - name: twice
    namespace: [x]
    namespaces: [UPPER, 'x y']
    classes: any
    identities: [unknown]
    vaults: [{objects: ['secret/*']}, kv]
  - name: twice
    namespaces: [x]
    vaults: [{name: kv, objects: ['*/*'], extra: 1}]
  - just text
";
    let problems = NodePolicy::parse(text).unwrap_err();
    let fields: Vec<_> = problems.problems().iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "rule",
            "apiVersion",
            "kind",
            "rules[0].name",
            "rules[0].namespaces",
            "rules[0].vaults[0].objects[0]",
            "rules[0].vaults[0].objects[2]",
            "rules[1].namespace",
            "rules[1].namespaces[0]",
            "rules[1].namespaces[1]",
            "rules[1].classes",
            "rules[1].identities[0]",
            "rules[1].vaults[0].name",
            "rules[1].vaults[1]",
            "rules[2].vaults[0].extra",
            "rules[2].name",
            "rules[3]",
        ]
    );
    assert!(problems.to_string().contains("`rules[0].vaults[0].objects[0]`: `secrets/x` is not"));
}

#[test]
fn invalid_policy_text_is_rejected() {
    for text in ["", "null", "[]", "a: [", "rules: []", "\u{0}"] {
        assert!(NodePolicy::parse(text).is_err(), "{text:?}");
    }
    let bomb = format!("apiVersion: &a [x]\nkind: [{}]\n", "*a,".repeat(20_000));
    assert!(NodePolicy::parse(&bomb).is_err());
}

#[test]
fn changed_file_is_loaded_and_broken_file_keeps_the_last_good_policy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.yaml");
    std::fs::write(&path, POLICY).unwrap();
    let keeper = ReloadablePolicy::load(&path).unwrap();
    let keeper = Arc::new(keeper);
    let metrics = crate::NodeMetrics::new(lanyard_clock::SystemClock::shared());
    metrics.watch_policy(Arc::clone(&keeper));
    let page = lanyard_telemetry::MetricsPage::build(|registry| metrics.register(registry));
    let counted = |problems: u8| {
        let line = format!("lanyard_node_policy_problem {problems}");
        page.render().lines().any(|it| it == line)
    };
    let before = keeper.current();
    assert!(matches!(keeper.reload(), PolicyReload::Unchanged));
    assert!(counted(0) && keeper.warning().is_none());

    std::fs::write(&path, "rules: oops").unwrap();
    assert!(matches!(keeper.reload(), PolicyReload::Rejected(PolicyError::Invalid { .. })));
    assert!(keeper.load_error().is_some_and(|text| text.contains("`rules`")));
    let warning = keeper.warning().unwrap();
    assert!(
        counted(1) && warning.contains("`rules`") && warning.contains("next start"),
        "{warning}"
    );
    assert_eq!(keeper.current(), before);
    assert!(
        matches!(keeper.reload(), PolicyReload::Unchanged),
        "an unchanged bad file is reported once"
    );

    std::fs::remove_file(&path).unwrap();
    assert!(matches!(keeper.reload(), PolicyReload::Rejected(PolicyError::Read { .. })));
    assert_eq!(keeper.current(), before);

    std::fs::write(&path, POLICY.replace("ingress,", "")).unwrap();
    assert!(matches!(keeper.reload(), PolicyReload::Replaced { rules: 2, .. }));
    assert_ne!(keeper.current(), before);
    assert!(counted(0) && keeper.load_error().is_none());

    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(matches!(keeper.reload(), PolicyReload::Rejected(PolicyError::TooLarge { .. })));
    assert!(ReloadablePolicy::load(&path).is_err(), "loading a bad policy fails");
}

#[test]
fn suggestion_merges_subjects_with_equal_grants() {
    let reads = [
        access("ocm-1", "disk", client_identity(), "kv1/secret/disk"),
        access("ocm-2", "disk", client_identity(), "kv1/secret/disk"),
        access("ocm-1", "file", client_identity(), "kv1/secret/file"),
        access("ocm-2", "file", client_identity(), "kv1/secret/file"),
        access("solo", "disk", client_identity(), "KV1/secret/Disk"),
        access("solo", "disk", client_identity(), "kv1/cert/disk"),
    ];
    let suggestion = reads.into_iter().collect::<ObservedReads>().suggest();
    assert_eq!((suggestion.accesses, suggestion.policy.len()), (6, 3));
    let text = serde_saphyr::to_string(&suggestion.policy.to_document()).unwrap();
    assert_eq!(NodePolicy::parse(&text).unwrap(), suggestion.policy, "{text}");
}

fn any_access() -> impl Strategy<Value = VaultAccess> {
    let identity = prop_oneof![Just(SharedIdentity::SystemAssigned), Just(client_identity())];
    let kind = prop_oneof![Just(VaultObjectKind::Secret), Just(VaultObjectKind::Certificate)];
    ("[ab]", "[cd]?", identity, "kv[12]", kind, "[xyz]").prop_map(
        |(namespace, class, identity, vault, kind, name)| VaultAccess {
            namespace,
            class,
            identity,
            vault: vault.parse().unwrap(),
            object: VaultObjectName { kind, name: name.parse().unwrap() },
        },
    )
}

fn every_access() -> Vec<VaultAccess> {
    let mut all = Vec::new();
    for namespace in ["a", "b"] {
        for class in ["", "c", "d"] {
            for identity in [SharedIdentity::SystemAssigned, client_identity()] {
                for vault in ["kv1", "kv2"] {
                    for object in ["secret/x", "secret/y", "secret/z", "cert/x", "cert/y", "cert/z"]
                    {
                        all.push(access(namespace, class, identity, &format!("{vault}/{object}")));
                    }
                }
            }
        }
    }
    all
}

proptest! {
    #[test]
    fn a_suggestion_allows_exactly_what_was_read(
        reads in prop::collection::btree_set(any_access(), 0..40),
    ) {
        let suggestion = reads.iter().cloned().collect::<ObservedReads>().suggest();
        let text = serde_json::to_string(&suggestion.policy.to_document()).unwrap();
        let policy = NodePolicy::parse(&text).unwrap();
        prop_assert_eq!(&policy, &suggestion.policy);
        for access in every_access() {
            let allowed = policy.evaluate(&access).is_allowed();
            prop_assert_eq!(allowed, reads.contains(&access), "{:?}", access);
        }
    }

    #[test]
    fn arbitrary_text_never_yields_rules(text in "\\PC{0,200}") {
        if let Ok(policy) = NodePolicy::parse(&text) {
            prop_assert!(policy.is_empty());
        }
    }
}
