//! The engine with an effect that is no resource of Azure: notes on a shelf. The engine knows no kind of effect, so it
//! plans, applies, continues, rolls back and removes notes as it does resources of Azure.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use lanyard_changes::{
    CreationMark, DesiredResource, DestroyPlan, Effect, EffectAccess, EffectError,
    EffectErrorCause, EffectUsage, EffectWriteError, Journal, JournalCluster, LiveResource,
    LiveState, NoProgress, OwnershipTags, Plan, PropertyDifference, ResourceChange, ResourceGraph,
    ResourceId, ResourceKey, RollBackPlan, RunContext, RunOptions, RunReport, StackName,
    UnknownValueError, WriteProgress, apply, destroy, open_directory, read_live, roll_back,
};
use lanyard_clock::{ErrorHint, RetryClass, SharedClock, SystemClock};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

const STACK: StackName = StackName::new("notes");

/// Notes by their ids. Requests after the limit fail, as if the process was killed.
#[derive(Debug)]
struct Shelf {
    notes: Mutex<BTreeMap<String, Value>>,
    requests: AtomicUsize,
    limit: AtomicUsize,
}

#[derive(Debug, thiserror::Error)]
#[error("the shelf is locked")]
struct ShelfLocked;

impl ErrorHint for ShelfLocked {
    fn hint(&self) -> Option<Cow<'static, str>> {
        None
    }
}

/// A note with this text.
#[derive(Debug, Clone, PartialEq)]
struct Note(&'static str);

impl Shelf {
    fn new() -> Self {
        let (requests, limit) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        Self { notes: Mutex::default(), requests, limit }
    }

    fn count_request(&self) -> Result<(), EffectError> {
        if self.requests.fetch_add(1, Ordering::Relaxed) < self.limit.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(EffectError::new(RetryClass::Denied, EffectErrorCause::Rejected, ShelfLocked))
    }

    fn put(&self, id: &ResourceId, body: Value) -> Result<WriteProgress, EffectError> {
        self.count_request()?;
        self.notes.lock().insert(id.to_string(), body.clone());
        Ok(WriteProgress::Complete(body))
    }

    fn texts(&self) -> Vec<String> {
        let notes = self.notes.lock();
        notes.values().map(|note| note["text"].as_str().unwrap().to_owned()).collect()
    }
}

impl EffectAccess for Shelf {
    /// The note `notes:a` contains `notes:a/b`.
    fn removes(container: &ResourceId, content: &ResourceId) -> bool {
        container.contains(content)
    }

    fn live_resource(id: &ResourceId, body: Value) -> LiveResource {
        let at = body["written"].as_str().map(|at| CreationMark::at(at.parse().unwrap()));
        let creation = at.unwrap_or_default();
        LiveResource { id: id.clone(), body, creation, has_tags: true }
    }

    fn is_restored(_id: &ResourceId, body: &Value, live: &Value) -> bool {
        body == live
    }

    async fn read(&self, id: &ResourceId) -> Result<Option<LiveResource>, EffectError> {
        self.count_request()?;
        let note = self.notes.lock().get(id.as_str()).cloned();
        Ok(note.map(|body| Self::live_resource(id, body)))
    }

    async fn delete(
        &self,
        id: &ResourceId,
        _live: &LiveResource,
    ) -> Result<WriteProgress, EffectError> {
        self.count_request()?;
        let below = format!("{id}/");
        self.notes.lock().retain(|it, _| it != id.as_str() && !it.starts_with(&below));
        Ok(WriteProgress::Complete(Value::Null))
    }

    async fn restore(
        &self,
        id: &ResourceId,
        body: &Value,
        _live: Option<&LiveResource>,
    ) -> Result<WriteProgress, EffectError> {
        self.put(id, body.clone())
    }
}

impl Effect for Note {
    type Access = Shelf;

    fn usage(&self) -> EffectUsage {
        EffectUsage::Own
    }

    fn diff(&self, found: &LiveResource, _live: &LiveState) -> Vec<PropertyDifference> {
        let (path, desired) = ("text".to_owned(), Value::from(self.0));
        let live = found.body["text"].clone();
        if live == desired { Vec::new() } else { vec![PropertyDifference { path, desired, live }] }
    }

    fn updated_properties(&self, _live: &LiveState) -> Result<Value, UnknownValueError> {
        Ok(json!({ "text": self.0 }))
    }

    async fn write(
        &self,
        access: &Shelf,
        id: &ResourceId,
        existing: Option<&LiveResource>,
        _live: &LiveState,
        tags: &OwnershipTags,
    ) -> Result<WriteProgress, EffectWriteError> {
        let new = json!({ "written": "2026-11-30T12:00:00Z" });
        let mut body = existing.map_or(new, |existing| existing.body.clone());
        body["text"] = self.0.into();
        if existing.is_none() {
            tags.add_to(&mut body);
        }
        Ok(access.put(id, body)?)
    }
}

fn accepts_notes(stack: &StackName, id: &ResourceId, _subscription: &str) -> bool {
    *stack == STACK && id.as_str().starts_with("notes:")
}

/// A shelf with the journal of what lanyard wrote to it.
struct Notes {
    shelf: Shelf,
    directory: TempDir,
    tags: OwnershipTags,
    clock: SharedClock,
}

impl Notes {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let tags = OwnershipTags::new("harbour", "harbour-x");
        Self { shelf: Shelf::new(), directory, tags, clock: SystemClock::shared() }
    }

    async fn journal(&self) -> Journal {
        let cluster = JournalCluster {
            name: "harbour".to_owned(),
            infra_id: "harbour-x".to_owned(),
            subscription: "s".to_owned(),
        };
        open_directory(self.directory.path().to_owned(), &cluster, accepts_notes).await.unwrap()
    }

    fn context<'a>(&'a self, journal: &'a Journal) -> RunContext<'a, Shelf> {
        RunContext {
            access: &self.shelf,
            journal,
            tags: &self.tags,
            caller: &[],
            clock: &self.clock,
            progress: &NoProgress,
            options: RunOptions { parallel: 1, ..RunOptions::default() },
        }
    }

    async fn plan(&self, journal: &Journal, notes: &[(&str, &'static str)]) -> (Plan, LiveState) {
        let graph = graph(notes);
        let live = read_live(&self.shelf, &graph).await.unwrap();
        let plan = Plan::new(&graph, &live, &journal.state(), &self.tags, |_| false);
        (plan, live)
    }

    async fn apply(&self, notes: &[(&str, &'static str)]) -> RunReport {
        let journal = self.journal().await;
        let (plan, live) = self.plan(&journal, notes).await;
        apply(self.context(&journal), &graph(notes), &plan, live).await.unwrap()
    }

    async fn roll_back(&self) -> RunReport {
        let journal = self.journal().await;
        let plan = RollBackPlan::new::<Shelf>(&journal.state(), &[STACK]).unwrap();
        roll_back(self.context(&journal), &plan).await.unwrap()
    }

    async fn destroy(&self) -> RunReport {
        let journal = self.journal().await;
        let plan = DestroyPlan::new::<Shelf>(&journal.state(), &[STACK]);
        destroy(self.context(&journal), &plan, &[STACK]).await.unwrap()
    }

    /// Fails all requests after this number of further ones.
    fn limit_requests(&self, further: usize) {
        let sent = self.shelf.requests.load(Ordering::Relaxed);
        self.shelf.limit.store(sent.saturating_add(further), Ordering::Relaxed);
    }
}

/// Each note depends on the one before it.
fn graph(notes: &[(&str, &'static str)]) -> ResourceGraph<Note> {
    let key = |name: &str| ResourceKey::new(format!("note/{name}"));
    let resources = notes.iter().enumerate().map(|(position, (name, text))| DesiredResource {
        key: key(name),
        stack: STACK,
        id: format!("notes:{name}").parse().unwrap(),
        effect: Note(text),
        depends_on: notes[..position].last().map(|(before, _)| key(before)).into_iter().collect(),
    });
    ResourceGraph::new(resources.collect()).unwrap()
}

#[tokio::test]
async fn engine_creates_changes_and_removes_effects_that_it_does_not_know() {
    let notes = Notes::new();
    assert!(notes.apply(&[("a", "1"), ("a/b", "2"), ("c", "3")]).await.succeeded());
    assert_eq!(notes.shelf.texts(), ["1", "2", "3"]);
    // The second run changes one note, and deletes the one that the configuration no longer contains.
    assert!(notes.apply(&[("a", "1"), ("a/b", "changed")]).await.succeeded());
    assert_eq!(notes.shelf.texts(), ["1", "changed"]);
    let journal = notes.journal().await;
    let (plan, _) = notes.plan(&journal, &[("a", "1"), ("a/b", "changed")]).await;
    assert_eq!(plan.writes().count(), 0);
    drop(journal);
    assert!(notes.destroy().await.succeeded());
    assert_eq!(notes.shelf.texts(), Vec::<String>::new());
}

#[tokio::test]
async fn note_of_another_client_is_neither_changed_nor_removed() {
    let notes = Notes::new();
    let foreign = json!({ "text": "foreign", "written": "2026-11-30T11:00:00Z" });
    notes.shelf.notes.lock().insert("notes:a".to_owned(), foreign.clone());
    let journal = notes.journal().await;
    let (plan, _) = notes.plan(&journal, &[("a", "1")]).await;
    assert!(matches!(plan.resources[0].change, ResourceChange::Problem { .. }), "{plan:?}");
    drop(journal);
    assert!(!notes.apply(&[("a", "1")]).await.succeeded());
    assert!(notes.destroy().await.succeeded());
    assert_eq!(*notes.shelf.notes.lock(), BTreeMap::from([("notes:a".to_owned(), foreign)]));
}

#[tokio::test]
async fn run_that_ends_at_any_request_is_rolled_back_or_continued() {
    let before = [("a", "1"), ("c", "3")];
    let after = [("a", "changed"), ("b", "2")];
    let mut results = BTreeSet::new();
    for continues in [false, true] {
        for requests in 0..12 {
            let notes = Notes::new();
            assert!(notes.apply(&before).await.succeeded());
            let journal = notes.journal().await;
            let (plan, live) = notes.plan(&journal, &after).await;
            notes.limit_requests(requests);
            let run = apply(notes.context(&journal), &graph(&after), &plan, live).await.unwrap();
            notes.limit_requests(usize::MAX);
            drop(journal);
            if continues {
                assert!(notes.apply(&after).await.succeeded(), "after {requests} requests");
            } else if !run.succeeded() {
                assert!(notes.roll_back().await.succeeded(), "after {requests} requests");
            }
            results.insert((continues, run.succeeded(), notes.shelf.texts()));
        }
    }
    let texts = |texts: [&str; 2]| texts.map(str::to_owned).to_vec();
    assert_eq!(
        results,
        BTreeSet::from([
            (false, false, texts(["1", "3"])),
            (false, true, texts(["changed", "2"])),
            (true, false, texts(["changed", "2"])),
            (true, true, texts(["changed", "2"])),
        ])
    );
}
