use std::collections::BTreeSet;

use jiff::ToSpan as _;
use lanyard_azure::Rate;
use lanyard_clock::Clock as _;
use lanyard_vocabulary::Hop;
use proptest::prelude::*;

use super::*;
use crate::testing::{FakeAzure, Part, Trouble, secret_proofs, workload_proofs};
use crate::{Priority, UnlimitedMemory, VaultError};

const TENANT: &str = "11111111-1111-1111-1111-111111111111";
const CLIENT: &str = "22222222-2222-2222-2222-222222222222";
const AUDIENCE: &str = "api://AzureADTokenExchange";
const MOUNT: Demand = Demand::within(Priority::High, Duration::from_secs(10));
const ROTATION: Demand = Demand::within(Priority::Low, Duration::from_secs(102));
const REFRESH: Demand = Demand::within(Priority::Normal, Duration::ZERO);
const HOUR: Duration = Duration::from_hours(1);
const RATE: Rate = Rate { per_second: 1_000, burst: 1_000 };

type Pairs<'a> = &'a [(&'a str, &'a str)];

const MANAGED: Pairs<'_> = &[("useVMManagedIdentity", "true"), ("userAssignedIdentityID", CLIENT)];
const WORKLOAD: Pairs<'_> = &[("clientID", CLIENT)];

fn parameters(objects: &[&str], more: Pairs<'_>) -> ProviderParameters {
    let entry = |name: &&str| format!("  - |\n    objectName: {name}\n    objectType: secret\n");
    let objects = format!("array:\n{}", objects.iter().map(entry).collect::<String>());
    let common = [("keyvaultName", "kv1"), ("tenantID", TENANT), ("objects", objects.as_str())];
    let all = common.iter().chain(more);
    let all = all.map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    ProviderParameters::parse(&all).unwrap()
}

fn pod(namespace: &str, account: &str) -> Pod {
    Pod {
        namespace: namespace.to_owned(),
        name: "pod".to_owned(),
        uid: "uid".to_owned(),
        service_account: account.to_owned(),
    }
}

struct Node {
    azure: FakeAzure,
    vaults: Arc<NodeVaults>,
}

impl Node {
    fn new() -> Self {
        Self::beside(FakeAzure::new())
    }

    /// A node that has just been started, with an empty cache in memory.
    fn beside(azure: FakeAzure) -> Self {
        let stale = StaleCache::in_memory().unwrap();
        let settings = NodeVaultSettings::default();
        let ways = azure.ways(RATE, None);
        let vaults = NodeVaults::new(settings, ways, Some(stale), azure.shared_clock());
        Self { azure, vaults: Arc::new(vaults) }
    }

    async fn fetch(&self, order: &ReadOrder<'_>) -> Result<VaultReading, NodeVaultError> {
        self.azure.drive(self.vaults.fetch(order)).await
    }

    /// What the file `a` holds for a pod with these proofs.
    async fn read(
        &self,
        more: Pairs<'_>,
        pod: &Pod,
        proofs: &Proofs,
        demand: Demand,
    ) -> Result<String, NodeVaultError> {
        let parameters = parameters(&["a"], more);
        let serve_stale = None;
        let order = ReadOrder {
            parameters: &parameters,
            pod,
            proofs,
            demand,
            serve_stale,
            memory: &UnlimitedMemory,
        };
        Ok(text_of(&self.fetch(&order).await?))
    }

    async fn read_managed(&self, demand: Demand) -> Result<String, NodeVaultError> {
        self.read(MANAGED, &pod("ns", "sa"), &Proofs::default(), demand).await
    }

    /// The same for a class that opts in to what is sealed.
    async fn read_stale(
        &self,
        pod: &Pod,
        proofs: &Proofs,
        max_age: Duration,
    ) -> Result<VaultReading, NodeVaultError> {
        let parameters = parameters(&["a"], WORKLOAD);
        let (demand, serve_stale) = (MOUNT, Some(max_age));
        self.fetch(&ReadOrder {
            parameters: &parameters,
            pod,
            proofs,
            demand,
            serve_stale,
            memory: &UnlimitedMemory,
        })
        .await
    }

    /// The same where nobody is asked anew who may have been asked within `demand`.
    async fn read_kept(
        &self,
        pod: &Pod,
        proofs: &Proofs,
        demand: Demand,
    ) -> Result<VaultReading, NodeVaultError> {
        let parameters = parameters(&["a"], WORKLOAD);
        let serve_stale = Some(HOUR);
        self.fetch(&ReadOrder {
            parameters: &parameters,
            pod,
            proofs,
            demand,
            serve_stale,
            memory: &UnlimitedMemory,
        })
        .await
    }

    fn workload(&self, namespace: &str, account: &str) -> (Pod, Proofs) {
        let expires = self.azure.clock().now() + 1.hour();
        let subject = format!("system:serviceaccount:{namespace}:{account}");
        (pod(namespace, account), workload_proofs(&subject, AUDIENCE, expires))
    }
}

fn text_of(reading: &VaultReading) -> String {
    String::from_utf8(reading.files[0].content.expose().to_vec()).unwrap()
}

fn vault_error(error: &NodeVaultError) -> &VaultError {
    let NodeVaultError::Fetch(FetchError::Read(error)) = error else { panic!("{error}") };
    error.vault().unwrap()
}

#[tokio::test]
async fn a_hundred_pods_that_start_together_cost_one_read_of_each_object_and_one_token() {
    let node = Node::new();
    let names = ["a", "b", "c"];
    for name in names {
        node.azure.put("kv1", name);
    }
    let mounts = (0..100).map(|number| {
        let vaults = Arc::clone(&node.vaults);
        async move {
            let parameters = parameters(&names, MANAGED);
            let pod = pod(&format!("ns{number}"), "sa");
            let proofs = Proofs::default();
            let (demand, serve_stale) = (MOUNT, None);
            let order = ReadOrder {
                parameters: &parameters,
                pod: &pod,
                proofs: &proofs,
                demand,
                serve_stale,
                memory: &UnlimitedMemory,
            };
            vaults.fetch(&order).await.unwrap().files.len()
        }
    });
    let files = node.azure.drive(futures::future::join_all(mounts)).await;
    assert!(files.iter().all(|files| *files == 3));
    assert_eq!(node.azure.reads(), 3);
    assert_eq!(node.azure.token_requests(), [format!("managed identity {CLIENT}")]);
}

#[tokio::test]
async fn a_read_uses_the_token_that_authenticate_fetched() {
    let node = Node::new();
    node.azure.put("kv1", "a");
    let parameters = parameters(&["a"], MANAGED);
    let (pod, proofs) = (pod("ns", "sa"), Proofs::default());
    let work = node.vaults.authenticate(&parameters, &pod, &proofs);
    let expires = node.azure.drive(work).await.unwrap();
    assert!(expires > node.azure.clock().now());
    assert_eq!((node.azure.token_requests().len(), node.azure.reads()), (1, 0));
    node.read_managed(MOUNT).await.unwrap();
    assert_eq!((node.azure.token_requests().len(), node.azure.reads()), (1, 1));
}

#[tokio::test]
async fn authenticate_returns_the_token_services_error() {
    let node = Node::new();
    node.azure.trouble(Part::Tokens, Some(Trouble::Status(400)));
    let parameters = parameters(&["a"], MANAGED);
    let (pod, proofs) = (pod("ns", "sa"), Proofs::default());
    let error = node.azure.drive(node.vaults.authenticate(&parameters, &pod, &proofs)).await;
    let error = error.unwrap_err();
    assert!(matches!(&error, NodeVaultError::Token(VaultError::Token { .. })), "{error}");
    assert!(error.hint().is_some());
}

#[tokio::test]
async fn the_volumes_of_a_node_cost_one_read_for_each_object_and_interval() {
    let node = Node::new();
    node.azure.put("kv1", "a");
    // A hundred volumes, spread over the interval of two minutes, for ten intervals.
    for _ in 0..1_000 {
        node.read_managed(ROTATION).await.unwrap();
        node.azure.pass(Duration::from_millis(1_200)).await;
    }
    // The shared value lives for 102 s of 120 s.
    assert!((10..=12).contains(&node.azure.reads()), "{}", node.azure.reads());
}

#[tokio::test]
async fn a_refresh_reads_whatever_is_known() {
    let node = Node::new();
    node.azure.put("kv1", "a");
    assert!(node.read_managed(MOUNT).await.unwrap().contains("version 1"));
    node.azure.put("kv1", "a");
    assert!(node.read_managed(MOUNT).await.unwrap().contains("version 1"));
    assert!(node.read_managed(REFRESH).await.unwrap().contains("version 2"));
    assert!(node.read_managed(ROTATION).await.unwrap().contains("version 2"));
}

#[tokio::test]
async fn a_secret_near_its_renewal_is_read_anew_sooner() {
    let node = Node::new();
    node.azure.put("kv1", "a");
    let renewal = node.azure.clock().now() + 4.minutes();
    node.azure.tag("kv1", "a", "renew_after", renewal.to_string());
    let demand = Demand { max_age_near_renewal: Duration::from_secs(25), ..ROTATION };
    node.read_managed(demand).await.unwrap();
    node.azure.pass(Duration::from_secs(28)).await;
    node.read_managed(demand).await.unwrap();
    assert_eq!(node.azure.reads(), 2, "an eighth of what is left has passed");
    node.read_managed(ROTATION).await.unwrap();
    assert_eq!(node.azure.reads(), 2);
}

#[tokio::test]
async fn a_renewed_pod_token_keeps_the_access_token_and_serves_the_next_exchange() {
    let node = Node::new();
    node.azure.put("kv1", "a");
    for hour in 0..30 {
        let (pod, proofs) = node.workload("ns", "sa");
        node.read(WORKLOAD, &pod, &proofs, MOUNT).await.unwrap();
        assert_eq!(node.azure.reads(), hour + 1);
        node.azure.pass(Duration::from_mins(59)).await;
    }
    // Access tokens live for a day and are renewed halfway.
    assert_eq!(node.azure.token_requests().len(), 3);
}

#[tokio::test]
async fn every_mode_reads_as_whom_it_says() {
    let node = Node::new();
    node.azure.put("kv1", "a");
    let (pod, token) = node.workload("ns", "sa");
    let now = node.azure.clock().now();
    let binding =
        workload_proofs("system:serviceaccount:ns:sa", "api://AKSIdentityBinding", now + 1.hour());
    let secret = secret_proofs(CLIENT, "planted");
    let cases: [(Pairs<'_>, &Proofs, String); 5] = [
        (MANAGED, &token, format!("managed identity {CLIENT}")),
        (&[("useVMManagedIdentity", "true")], &token, "managed identity system".to_owned()),
        (WORKLOAD, &token, format!("{CLIENT} of {TENANT} as system:serviceaccount:ns:sa")),
        (
            &[("clientID", CLIENT), ("useAzureTokenProxy", "true")],
            &binding,
            format!("{CLIENT} of {TENANT} as system:serviceaccount:ns:sa"),
        ),
        (&[], &secret, format!("{CLIENT} of {TENANT} as who knows planted")),
    ];
    for (more, proofs, identity) in cases {
        let value = node.read(more, &pod, proofs, MOUNT).await.unwrap();
        assert_eq!(value, format!("kv1.vault.azure.net/secrets/a version 1 for {identity}"));
    }
    assert_eq!(node.azure.reads(), 5, "nobody is served what another read");
}

#[tokio::test]
async fn the_user_agent_says_what_the_owner_of_the_node_wants() {
    let azure = FakeAzure::new();
    azure.put("kv1", "a");
    let ways = NodeWays { user_agent: Some("aks/7".parse().unwrap()), ..azure.ways(RATE, None) };
    let settings = NodeVaultSettings::default();
    let vaults = Arc::new(NodeVaults::new(settings, ways, None, azure.shared_clock()));
    Node { azure: azure.clone(), vaults }.read_managed(MOUNT).await.unwrap();
    let agent = azure.calls()[0].user_agent.clone();
    assert!(agent.ends_with(" aks/7") && agent.starts_with("azsdk-rust"), "{agent}");
}

#[tokio::test]
async fn an_outage_is_bridged_for_who_could_read_before_and_for_nobody_else() {
    let node = Node::new();
    node.azure.put("kv1", "a");
    let (pod, proofs) = node.workload("ns", "sa");
    node.read_stale(&pod, &proofs, HOUR).await.unwrap();
    node.azure.pass(Duration::from_mins(5)).await;
    for trouble in [Trouble::Status(503), Trouble::Unreachable, Trouble::Status(429)] {
        node.azure.trouble(Part::Vaults, Some(trouble));
        let began = node.azure.clock().now();
        let (_, newer) = node.workload("ns", "sa");
        let reading = node.read_stale(&pod, &newer, HOUR).await.unwrap();
        assert!(text_of(&reading).ends_with("as system:serviceaccount:ns:sa"));
        let VaultOutage { since, error } = reading.outage.unwrap();
        assert!(since >= began && since <= node.azure.clock().now(), "{since}");
        assert!(error.vault().is_some_and(VaultError::is_outage), "it says why: {error}");
        // It has one beginning, however often it is met.
        node.azure.pass(Duration::from_mins(1)).await;
        let again = node.read_stale(&pod, &newer, HOUR).await.unwrap();
        assert_eq!(again.outage.map(|outage| outage.since), Some(since));
        for (namespace, account) in [("ns", "other"), ("other", "sa")] {
            let (pod, proofs) = node.workload(namespace, account);
            let error = node.read_stale(&pod, &proofs, HOUR).await.unwrap_err();
            assert!(vault_error(&error).is_outage(), "{error}");
        }
        // Not opted in.
        node.read(WORKLOAD, &pod, &newer, MOUNT).await.unwrap_err();
        node.azure.trouble(Part::Vaults, None);
        node.azure.pass(Duration::from_mins(1)).await;
        assert!(node.read_stale(&pod, &newer, HOUR).await.unwrap().outage.is_none());
        node.azure.pass(Duration::from_mins(1)).await;
    }
}

#[tokio::test]
async fn an_outage_of_the_token_service_is_bridged_too() {
    let node = Node::new();
    node.azure.put("kv1", "a");
    let (pod, proofs) = node.workload("ns", "sa");
    node.read_stale(&pod, &proofs, HOUR * 48).await.unwrap();
    node.azure.trouble(Part::Tokens, Some(Trouble::Unreachable));
    node.azure.pass(HOUR * 25).await;
    let (_, newer) = node.workload("ns", "sa");
    let reading = node.read_stale(&pod, &newer, HOUR * 48).await.unwrap();
    let error = reading.outage.unwrap().error;
    assert!(matches!(error.vault(), Some(VaultError::Token { .. })), "{error}");
}

#[tokio::test]
async fn a_refusal_is_never_bridged_and_ends_what_was_kept() {
    let node = Node::new();
    node.azure.put("kv1", "a");
    let (pod, proofs) = node.workload("ns", "sa");
    let identity = format!("{CLIENT} of {TENANT} as system:serviceaccount:ns:sa");
    node.read_stale(&pod, &proofs, HOUR).await.unwrap();
    node.azure.deny(&identity, 403);
    node.azure.pass(Duration::from_mins(1)).await;
    let error = node.read_stale(&pod, &proofs, HOUR).await.unwrap_err();
    assert!(matches!(vault_error(&error), VaultError::Forbidden(_)), "{error}");
    // The vault goes away after it has said no.
    node.azure.trouble(Part::Vaults, Some(Trouble::Status(503)));
    node.azure.pass(Duration::from_mins(1)).await;
    node.read_stale(&pod, &proofs, HOUR).await.unwrap_err();
}

#[tokio::test]
async fn what_was_refused_is_not_sealed_again_by_who_has_an_older_value_at_hand() {
    for demand in [MOUNT, ROTATION] {
        let node = Node::new();
        node.azure.put("kv1", "a");
        let (pod, proofs) = node.workload("ns", "sa");
        let identity = format!("{CLIENT} of {TENANT} as system:serviceaccount:ns:sa");
        node.read_stale(&pod, &proofs, HOUR).await.unwrap();
        node.azure.pass(Duration::from_secs(5)).await;
        node.azure.deny(&identity, 403);
        let error = node.read_kept(&pod, &proofs, REFRESH).await.unwrap_err();
        assert!(matches!(vault_error(&error), VaultError::Forbidden(_)), "{error}");
        // What was read five seconds before is new enough for both.
        node.azure.pass(Duration::from_secs(1)).await;
        node.read_kept(&pod, &proofs, demand).await.unwrap_err();
        node.azure.trouble(Part::Vaults, Some(Trouble::Unreachable));
        node.azure.pass(Duration::from_mins(2)).await;
        node.read_stale(&pod, &proofs, HOUR).await.unwrap_err();
    }
}

#[tokio::test]
async fn what_is_older_than_the_class_allows_is_not_served() {
    let node = Node::new();
    node.azure.put("kv1", "a");
    let (pod, proofs) = node.workload("ns", "sa");
    node.read_stale(&pod, &proofs, HOUR).await.unwrap();
    node.azure.trouble(Part::Vaults, Some(Trouble::Unreachable));
    node.azure.pass(Duration::from_mins(50)).await;
    let (_, newer) = node.workload("ns", "sa");
    node.read_stale(&pod, &newer, HOUR).await.unwrap();
    node.azure.pass(Duration::from_mins(11)).await;
    let error = node.read_stale(&pod, &newer, HOUR).await.unwrap_err();
    assert!(vault_error(&error).is_outage());
}

#[tokio::test]
async fn a_pod_without_a_token_that_lives_is_served_nothing() {
    let node = Node::new();
    node.azure.put("kv1", "a");
    let (pod, proofs) = node.workload("ns", "sa");
    node.read_stale(&pod, &proofs, HOUR * 9).await.unwrap();
    node.azure.trouble(Part::Vaults, Some(Trouble::Unreachable));
    node.azure.pass(HOUR * 2).await;
    for proofs in [&proofs, &Proofs::default()] {
        let error = node.read_stale(&pod, proofs, HOUR * 9).await.unwrap_err();
        assert!(matches!(error, NodeVaultError::Identity(_)), "{error}");
    }
}

#[tokio::test]
async fn a_node_that_starts_in_an_outage_fails_closed() {
    let node = Node::new();
    node.azure.put("kv1", "a");
    let (pod, proofs) = node.workload("ns", "sa");
    node.read_stale(&pod, &proofs, HOUR).await.unwrap();
    node.azure.trouble(Part::Vaults, Some(Trouble::Unreachable));
    let restarted = Node::beside(node.azure.clone());
    restarted.read_stale(&pod, &proofs, HOUR).await.unwrap_err();
    let error = restarted.read_managed(MOUNT).await.unwrap_err();
    let NodeVaultError::Fetch(error) = error else { panic!("{error}") };
    assert_eq!(error.hop(), Hop::VaultRead);
}

#[tokio::test]
async fn nothing_that_is_secret_is_printed() {
    let node = Node::new();
    node.azure.put_value("kv1", "a", "planted-value");
    let now = node.azure.clock().now();
    let pod = pod("ns", "sa");
    let token = workload_proofs("planted-subject", AUDIENCE, now + 1.hour());
    let jwt = token.tokens.0[AUDIENCE].token.expose().to_vec();
    let jwt = String::from_utf8(jwt).unwrap();
    let secret = secret_proofs(CLIENT, "planted-secret");
    let parameters_of = |more| parameters(&["a"], more);
    let mut told = Vec::new();
    for (more, proofs) in [(WORKLOAD, &token), (&[][..], &secret)] {
        let parameters = parameters_of(more);
        let (demand, serve_stale) = (MOUNT, Some(HOUR));
        let order = ReadOrder {
            parameters: &parameters,
            pod: &pod,
            proofs,
            demand,
            serve_stale,
            memory: &UnlimitedMemory,
        };
        let reading = node.fetch(&order).await.unwrap();
        told.push(format!("{order:?} {reading:?} {:?}", node.vaults));
    }
    node.azure.trouble(Part::Vaults, Some(Trouble::Status(401)));
    let error = node.read(&[], &pod, &secret, REFRESH).await.unwrap_err();
    told.push(format!("{error} {error:?} {:?}", error.hint()));
    let told = told.join(" ");
    assert!(!told.contains("planted") && !told.contains(&jwt), "{told}");
}

/// Who reads, in a world of few.
#[derive(Debug, Clone)]
enum Who {
    Node { client: bool },
    Workload { namespace: u8, account: u8, tenant: bool },
    Principal { secret: u8 },
}

fn anybody() -> impl Strategy<Value = Who> {
    prop_oneof![
        any::<bool>().prop_map(|client| Who::Node { client }),
        (0..2_u8, 0..2_u8, any::<bool>()).prop_map(|(namespace, account, tenant)| Who::Workload {
            namespace,
            account,
            tenant
        }),
        (0..2_u8).prop_map(|secret| Who::Principal { secret }),
    ]
}

fn demands() -> impl Strategy<Value = Demand> {
    prop_oneof![Just(MOUNT), Just(ROTATION), Just(REFRESH)]
}

const OTHER_TENANT: &str = "99999999-9999-9999-9999-999999999999";

impl Who {
    /// Reads as this one, and says as whom Azure has to have seen it.
    async fn read(
        &self,
        node: &Node,
        demand: Demand,
    ) -> (Result<VaultReading, NodeVaultError>, String) {
        node.azure.drive(self.ask(node, demand)).await
    }

    /// The same while somebody else moves the clock.
    async fn ask(
        &self,
        node: &Node,
        demand: Demand,
    ) -> (Result<VaultReading, NodeVaultError>, String) {
        let (more, pod, proofs, identity): (Vec<(&str, &str)>, _, _, _) = match self {
            Self::Node { client: true } => {
                let identity = format!("managed identity {CLIENT}");
                (MANAGED.to_vec(), pod("ns", "sa"), Proofs::default(), identity)
            }
            Self::Node { client: false } => {
                let more = vec![("useVMManagedIdentity", "true")];
                let identity = "managed identity system".to_owned();
                (more, pod("ns", "sa"), Proofs::default(), identity)
            }
            Self::Workload { namespace, account, tenant } => {
                let (pod, proofs) = node.workload(&format!("n{namespace}"), &format!("s{account}"));
                let tenant = if *tenant { TENANT } else { OTHER_TENANT };
                let identity = format!(
                    "{CLIENT} of {tenant} as system:serviceaccount:n{namespace}:s{account}"
                );
                (vec![("clientID", CLIENT), ("tenantID", tenant)], pod, proofs, identity)
            }
            Self::Principal { secret } => {
                let secret = format!("secret{secret}");
                let identity = format!("{CLIENT} of {TENANT} as who knows {secret}");
                (Vec::new(), pod("ns", "sa"), secret_proofs(CLIENT, &secret), identity)
            }
        };
        let parameters = parameters(&["a"], &more);
        let serve_stale = Some(HOUR);
        let (pod, proofs) = (&pod, &proofs);
        let order = ReadOrder {
            parameters: &parameters,
            pod,
            proofs,
            demand,
            serve_stale,
            memory: &UnlimitedMemory,
        };
        (node.vaults.fetch(&order).await, identity)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nobody_is_ever_served_what_another_read(
        // A failure answers for five seconds.
        steps in prop::collection::vec((anybody(), demands(), 6..30_u64, prop::bool::weighted(0.3)), 1..24),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let node = Node::new();
            node.azure.put("kv1", "a");
            let mut could_read = BTreeSet::new();
            for (who, demand, pause, outage) in steps {
                node.azure.trouble(Part::Vaults, outage.then_some(Trouble::Status(500)));
                node.azure.pass(Duration::from_secs(pause)).await;
                let (outcome, identity) = who.read(&node, demand).await;
                if let Ok(reading) = outcome {
                    let text = text_of(&reading);
                    let suffix = format!(" for {identity}");
                    prop_assert!(text.ends_with(&suffix), "{text} was given to {identity}");
                    if outage {
                        prop_assert!(could_read.contains(&identity), "{identity} never read");
                    } else {
                        could_read.insert(identity);
                    }
                } else {
                    prop_assert!(outage, "{outcome:?}");
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn who_was_refused_is_never_served_again(
        steps in prop::collection::vec(
            (
                prop::collection::vec((anybody(), demands()), 1..5),
                6..30_u64,
                prop::bool::weighted(0.3),
                prop::option::weighted(0.3, 0..2_u8),
            ),
            1..16,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let node = Node::new();
            node.azure.put("kv1", "a");
            let mut refused = BTreeSet::new();
            for (readers, pause, outage, denied) in steps {
                if let Some(account) = denied {
                    let subject = format!("system:serviceaccount:n0:s{account}");
                    node.azure.deny(format!("{CLIENT} of {TENANT} as {subject}"), 403);
                }
                node.azure.trouble(Part::Vaults, outage.then_some(Trouble::Status(500)));
                node.azure.pass(Duration::from_secs(pause)).await;
                // All at once.
                let asking = readers.iter().map(|(who, demand)| who.ask(&node, *demand));
                let outcomes = node.azure.drive(futures::future::join_all(asking)).await;
                for (outcome, identity) in &outcomes {
                    if let Ok(reading) = outcome {
                        let text = text_of(reading);
                        let suffix = format!(" for {identity}");
                        prop_assert!(text.ends_with(&suffix), "{text} was given to {identity}");
                        prop_assert!(!refused.contains(identity), "{identity} was refused before");
                    }
                }
                for (outcome, identity) in outcomes {
                    if outcome.is_err_and(|error| vault_error(&error).is_refusal()) {
                        refused.insert(identity);
                    }
                }
            }
            Ok(())
        })?;
    }
}
