//! Lanyard and another client, which use the same names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::TokenCredential;
use lanyard_azure::{
    ArmClient, AzureTransport, AzureTransportSettings, CallerIdentity, GraphClient, RetryPolicy,
};
use lanyard_changes::{
    AzureAccess, AzureGraph, DestroyPlan, Journal, JournalCluster, NoProgress, OwnershipTags,
    RollBackPlan, RunContext, RunOptions, RunReport, StackName, api_version_of, apply, destroy,
    open_directory, read_live, roll_back, wait_for_interrupted_writes,
};
use lanyard_clock::{ManualClock, SharedClock};
use lanyard_emulator::testing::arm_fixture::ArmFixture;
use lanyard_emulator::testing::{AzureState, EngineFixture, Ingress};
use lanyard_infra::{ClusterIdentifiers, plan_changes, stacks};
use lanyard_vocabulary::{ArmResourceId, SubscriptionId, cloud};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use crate::contested_resources::{OWN_GROUP, ROLE, desired_resources, other_body};
use crate::engine_client::{ARM_AUDIENCE, CutPosition, EngineClient, EngineCredential, Intruder};

const STACKS: [StackName; 2] = [stacks::INFRA, stacks::IAM];

/// A run of lanyard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    /// `without` is left out of the configuration.
    Apply {
        without: Option<usize>,
    },
    Destroy,
    RollBack,
}

/// Both clients, and the engine that they use.
pub(crate) struct TwoClients {
    engine: Arc<EngineFixture>,
    initial: AzureState,
    own: Arc<EngineCredential>,
    other: Arc<EngineCredential>,
    other_object: Uuid,
    caller: Vec<String>,
    ids: Vec<ArmResourceId>,
    tags: OwnershipTags,
    cluster: JournalCluster,
}

/// The other client's view of the contested resources.
#[derive(Debug, Default)]
struct OtherClient {
    /// The bodies of its resources by their number.
    own: BTreeMap<usize, Value>,
    /// The resources of lanyard whose tags it changed.
    touched: BTreeSet<usize>,
    /// What happened, for the message of a failure.
    log: Vec<String>,
}

impl TwoClients {
    pub(crate) fn new() -> Self {
        let ArmFixture { probe, owner, reader } = ArmFixture::new();
        let engine = Arc::new(probe);
        let subscription: SubscriptionId = "sub".parse().unwrap();
        let identifiers =
            ClusterIdentifiers::new("harbour".parse().unwrap(), "harbour-x7k2p".parse().unwrap())
                .unwrap();
        let own = EngineCredential::new(&engine, owner);
        let caller = CallerIdentity::of_token(&own.token(ARM_AUDIENCE)).unwrap().creator_names;
        let other = EngineCredential::new(&engine, reader);
        let other_object = CallerIdentity::of_token(&other.token(ARM_AUDIENCE)).unwrap().object_id;
        let resources = desired_resources(&subscription);
        let clients = Self {
            own,
            other,
            other_object,
            caller,
            ids: resources.iter().filter_map(|resource| resource.id.arm().cloned()).collect(),
            tags: identifiers.ownership_tags(),
            cluster: identifiers.journal_cluster(&subscription),
            initial: AzureState::default(),
            engine,
        };
        clients.grant_owner_to_the_other_client();
        let initial = clients.engine.engine.state().azure.clone();
        Self { initial, ..clients }
    }

    /// Creates the group `user`, and makes the other client an owner of the subscription.
    fn grant_owner_to_the_other_client(&self) {
        let group = "/subscriptions/sub/resourceGroups/user?api-version=2021-04-01";
        let body = json!({ "location": "eastus" });
        assert_eq!(send(&self.engine, &self.own, "PUT", group, &body).0, 201);
        let assignment = format!(
            "/subscriptions/sub/providers/Microsoft.Authorization/roleAssignments/{}?api-version=2022-04-01",
            Uuid::from_u128(1)
        );
        let role = "/subscriptions/sub/providers/Microsoft.Authorization/roleDefinitions/8e3af657-a8ff-443c-a75c-2fe8c4bcb635";
        let body = json!({ "properties": {
            "roleDefinitionId": role, "principalId": self.other_object,
            "principalType": "ServicePrincipal",
        } });
        assert_eq!(send(&self.engine, &self.own, "PUT", &assignment, &body).0, 201);
    }

    /// Runs a random sequence from the initial state.
    pub(crate) async fn run_sequence(&mut self, seed: u64) {
        self.engine.engine.state().azure = self.initial.clone();
        let mut random = fastrand::Rng::with_seed(seed);
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let client = EngineClient::new(Arc::clone(&self.engine));
        let other = Arc::new(Mutex::new(OtherClient::default()));
        for _ in 0..random.usize(1..4) {
            for _ in 0..random.usize(0..3) {
                self.act_as_other(&client, &other, &mut random);
            }
            let run = match random.u8(0..6) {
                0..3 => Run::Apply { without: None },
                3 => Run::Apply { without: Some(random.usize(1..self.ids.len())) },
                4 => Run::RollBack,
                _ => Run::Destroy,
            };
            let cut = random.bool().then(|| {
                let position = if random.bool() {
                    CutPosition::BeforeRequest
                } else {
                    CutPosition::AfterRequest
                };
                (random.usize(0..30), position)
            });
            let intruder = random.bool().then(|| self.intruder(&client, &other, &mut random));
            client.begin_run(cut, intruder);
            other.lock().log.push(format!("{run:?} cut {cut:?}"));
            self.run(run, &client, &directory, &other, seed).await;
        }
        client.begin_run(None, None);
        self.run(Run::Destroy, &client, &directory, &other, seed).await;
    }

    /// The other client at one request of a run. It acts before a read, because Azure has no conditional writes for
    /// most types: between the read of a resource and its write, nobody could prevent the loss.
    fn intruder(
        &self,
        client: &Arc<EngineClient>,
        other: &Arc<Mutex<OtherClient>>,
        random: &mut fastrand::Rng,
    ) -> Intruder {
        let (mut left, mut random) = (random.usize(0..25), random.fork());
        let (ids, credential, object) =
            (self.ids.clone(), Arc::clone(&self.other), self.other_object);
        let (client, other) = (Arc::downgrade(client), Arc::clone(other));
        Box::new(move |engine, request| {
            let path = request.url().path();
            let is_read = request.method().as_str() == "GET" && !path.ends_with("/resources");
            if left > 0 || !is_read {
                left = left.saturating_sub(1);
                return;
            }
            left = usize::MAX;
            if let Some(client) = client.upgrade() {
                let actor =
                    Actor { engine, client: &client, ids: &ids, credential: &credential, object };
                actor.act(&mut other.lock(), &mut random);
            }
        })
    }

    fn act_as_other(
        &self,
        client: &EngineClient,
        other: &Mutex<OtherClient>,
        random: &mut fastrand::Rng,
    ) {
        let (engine, ids) = (&*self.engine, &*self.ids);
        let actor =
            Actor { engine, client, ids, credential: &self.other, object: self.other_object };
        actor.act(&mut other.lock(), random);
    }

    /// Does one run of lanyard, and checks the resources of both clients after it.
    async fn run(
        &self,
        run: Run,
        client: &Arc<EngineClient>,
        directory: &TempDir,
        other: &Mutex<OtherClient>,
        seed: u64,
    ) {
        let ended = self.do_run(run, client, directory).await;
        let other = other.lock();
        let context = || format!("seed {seed}: {:#?}\n{ended:?}", other.log);
        for (number, expected) in &other.own {
            let live = self.live(*number);
            assert_eq!(live.as_ref(), Some(expected), "{}", context());
        }
        let removed = run == Run::Destroy && ended.as_ref().is_some_and(RunReport::succeeded);
        for number in (0..self.ids.len()).filter(|_| removed) {
            if other.own.contains_key(&number) || other.touched.contains(&number) {
                continue;
            }
            if let Some(live) = self.live(number) {
                let created_by = live["properties"]["createdBy"].as_str().unwrap_or_default();
                let is_ours =
                    self.tags.are_on(&live) || self.caller.iter().any(|it| it == created_by);
                assert!(!is_ours, "{} is left: {}", self.ids[number], context());
            }
        }
    }

    /// The report of the run; `None` if the run was cut or could not begin.
    async fn do_run(
        &self,
        run: Run,
        client: &Arc<EngineClient>,
        directory: &TempDir,
    ) -> Option<RunReport> {
        let clock = self.engine.clock.clone();
        let shared: SharedClock = Arc::new(clock.clone());
        let (arm, graph) = self.arm_and_graph(client);
        let path = directory.path().join("journal");
        let journal = open_directory(path, &self.cluster, stacks::can_contain).await.unwrap();
        let options = RunOptions {
            parallel: 1,
            retry_timeout: Duration::from_mins(2),
            ..RunOptions::default()
        };
        let context = RunContext {
            access: &AzureAccess::new(arm, graph),
            journal: &journal,
            tags: &self.tags,
            caller: &self.caller,
            clock: &shared,
            progress: &NoProgress,
            options,
        };
        let work = Box::pin(self.work(run, context, &journal));
        tokio::select! {
            biased;
            () = client.reached() => None,
            report = work => report,
            () = advance(&clock) => unreachable!("the time advances forever"),
        }
    }

    async fn work(
        &self,
        run: Run,
        context: RunContext<'_, AzureAccess>,
        journal: &Journal,
    ) -> Option<RunReport> {
        wait_for_interrupted_writes(context).await.ok()?;
        match run {
            Run::Apply { without } => {
                let mut resources = desired_resources(&"sub".parse().unwrap());
                if let Some(number) = without {
                    let key = resources.remove(number).key;
                    resources.retain(|it| !it.depends_on.contains(&key));
                }
                let graph = AzureGraph::new(resources).unwrap();
                let live = read_live(context.access, &graph).await.ok()?;
                let plan = plan_changes(&graph, &live, &journal.state(), &self.tags);
                Some(apply(context, &graph, &plan, live).await.unwrap())
            }
            Run::Destroy => {
                let plan = DestroyPlan::new::<AzureAccess>(&journal.state(), &STACKS);
                Some(destroy(context, &plan, &STACKS).await.unwrap())
            }
            Run::RollBack => {
                let plan = RollBackPlan::new::<AzureAccess>(&journal.state(), &STACKS).ok()?;
                roll_back(context, &plan).await.ok()
            }
        }
    }

    fn live(&self, number: usize) -> Option<Value> {
        read(&self.engine, &self.other, &self.ids[number])
    }

    /// Lanyard's clients of Azure Resource Manager and of Microsoft Graph.
    fn arm_and_graph(&self, client: &Arc<EngineClient>) -> (ArmClient, GraphClient) {
        let second = Duration::from_secs(1);
        let settings = AzureTransportSettings {
            retry: RetryPolicy { retries: 0, base: second, cap: second },
            ..AzureTransportSettings::default()
        };
        let clock: SharedClock = Arc::new(self.engine.clock.clone());
        let http = Arc::<EngineClient>::clone(client);
        let transport = AzureTransport::from_http_client(http, &settings, clock);
        let credential: Arc<dyn TokenCredential> = Arc::<EngineCredential>::clone(&self.own);
        let graph = GraphClient::new(&cloud::PUBLIC, Arc::clone(&credential), &transport);
        (ArmClient::new(&cloud::PUBLIC, credential, &transport), graph)
    }

    /// Lanyard's clients for work outside a run.
    pub(crate) fn lanyard_clients(&self) -> (ArmClient, GraphClient) {
        self.arm_and_graph(&EngineClient::new(Arc::clone(&self.engine)))
    }

    /// The object id of lanyard's identity.
    pub(crate) fn own_object(&self) -> Uuid {
        CallerIdentity::of_token(&self.own.token(ARM_AUDIENCE)).unwrap().object_id
    }

    /// The tags of lanyard.
    pub(crate) const fn tags(&self) -> &OwnershipTags {
        &self.tags
    }

    pub(crate) fn clock(&self) -> &ManualClock {
        &self.engine.clock
    }

    /// Advances the time while the work waits for it.
    pub(crate) async fn while_time_advances<T>(&self, work: impl Future<Output = T>) -> T {
        let work = Box::pin(work);
        tokio::select! {
            biased;
            result = work => result,
            () = advance(&self.engine.clock) => unreachable!("the time advances forever"),
        }
    }

    /// Sends a write that Azure accepts. `body` is null for a deletion.
    pub(crate) fn write(&self, method: &str, id: &ArmResourceId, body: &Value) {
        let path = format!("{id}?api-version={}", api_version_of(id));
        let (status, reply) = send(&self.engine, &self.own, method, &path, body);
        assert_eq!(status / 100, 2, "{method} {id}: {status} {reply}");
    }

    /// The live resource with this id.
    pub(crate) fn read(&self, id: &ArmResourceId) -> Option<Value> {
        read(&self.engine, &self.own, id)
    }
}

/// The other client during one action.
struct Actor<'a> {
    engine: &'a EngineFixture,
    client: &'a EngineClient,
    ids: &'a [ArmResourceId],
    credential: &'a EngineCredential,
    object: Uuid,
}

impl Actor<'_> {
    /// Does something to a random resource.
    fn act(&self, other: &mut OtherClient, random: &mut fastrand::Rng) {
        let number = random.usize(0..self.ids.len());
        let id = &self.ids[number];
        let live = read(self.engine, self.credential, id);
        let existed = live.is_some();
        if !existed {
            other.touched.remove(&number);
        }
        let (name, status) = match random.u8(0..6) {
            0 | 1 => ("put", self.put(number, &other_body(number, self.object, random.bool()))),
            2 => ("delete", self.delete(number, other)),
            3 if number != ROLE && live.is_some() => {
                ("drop tags of", self.put_tags(number, json!({ "owner": "another team" }), live))
            }
            4 if number != ROLE && live.is_some() && !other.own.contains_key(&number) => {
                let mut tags = live.as_ref().unwrap()["tags"].clone();
                tags["cost"] = "7".into();
                other.touched.insert(number);
                other.log.push(format!("tag {id}"));
                self.put_tags(number, tags, live);
                return;
            }
            _ => {
                self.client.toggle_policy(id.as_str());
                ("toggle the policy of", 0)
            }
        };
        other.log.push(format!("{name} {id}: {status}"));
        if status / 100 == 2 && name != "delete" {
            self.finish_operation();
            // A resource that lanyard created stays its own: Azure keeps the time of the creation.
            if existed && !other.own.contains_key(&number) {
                other.touched.insert(number);
            } else if let Some(live) = read(self.engine, self.credential, id) {
                other.own.insert(number, live);
            }
        }
    }

    fn put(&self, number: usize, body: &Value) -> u16 {
        let id = &self.ids[number];
        let path = format!("{id}?api-version={}", api_version_of(id));
        send(self.engine, self.credential, "PUT", &path, body).0
    }

    fn put_tags(&self, number: usize, tags: Value, live: Option<Value>) -> u16 {
        let mut body = live.unwrap_or_default();
        body["tags"] = tags;
        for read_only in ["id", "name", "type", "etag", "systemData"] {
            body.as_object_mut().unwrap().remove(read_only);
        }
        self.put(number, &body)
    }

    fn delete(&self, number: usize, other: &mut OtherClient) -> u16 {
        let id = &self.ids[number];
        let path = format!("{id}?api-version={}", api_version_of(id));
        let (status, _) = send(self.engine, self.credential, "DELETE", &path, &Value::Null);
        self.finish_operation();
        if status / 100 == 2 {
            other.own.remove(&number);
            other.touched.remove(&number);
            if number == OWN_GROUP {
                other.own.retain(|number, _| !id.contains(&self.ids[*number]));
                other.touched.retain(|number| !id.contains(&self.ids[*number]));
            }
        }
        status
    }

    /// Lets the time pass that an operation of Azure takes.
    fn finish_operation(&self) {
        self.engine.clock.advance(Duration::from_secs(40));
    }
}

fn send(
    engine: &EngineFixture,
    who: &EngineCredential,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let bearer = format!("Bearer {}", who.token(ARM_AUDIENCE));
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let url = format!("https://management.azure.com{path}");
    let method = method.parse().unwrap();
    let reply = engine.send_request(Ingress::Tunnel, &method, &url, &headers, &text);
    let body = serde_json::from_slice(&reply.body).unwrap_or_default();
    (reply.status.as_u16(), body)
}

/// The live resource without what changes with time.
fn read(engine: &EngineFixture, who: &EngineCredential, id: &ArmResourceId) -> Option<Value> {
    let path = format!("{id}?api-version={}", api_version_of(id));
    let (status, mut body) = send(engine, who, "GET", &path, &Value::Null);
    (status == 200).then(|| {
        body.as_object_mut().unwrap().remove("etag");
        body
    })
}

/// Advances the time while all work waits for it.
async fn advance(clock: &ManualClock) {
    loop {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let next = clock.time_until_next_deadline().unwrap_or(Duration::from_secs(1));
        clock.advance(next);
    }
}
