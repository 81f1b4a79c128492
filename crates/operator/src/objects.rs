//! The objects of a cluster: what is desired, what differs, and making it so.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use lanyard_desired::diff::FieldPath;
use lanyard_desired::drift::ChangedObject;
use lanyard_desired::objects::{Inputs, Owner, cluster_label};
use lanyard_desired::{Change, DesiredObject, ObjectKey, Pruning, desired_objects, diff};
use lanyard_kubernetes::ApiError;

use crate::apply::{Applied, Applier};
use crate::contest::Subject;
use crate::context::Context;
use crate::encryption_key::waits_for;
use crate::judge::Usable;
use crate::observe::Observed;
use crate::read::{Found, fetch_objects};
use crate::store::{Unsettled, Wished, wished};
use crate::strangers::fetch_strangers;

/// What differs, and what was compared.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) changes: Vec<Change>,
    /// What is desired and was not known to be so.
    open: Vec<DesiredObject>,
    /// What was known to be as it is desired.
    settled: BTreeSet<ObjectKey>,
    /// Whether an API server encrypts by what is desired here.
    encrypts: bool,
    /// The versions of what was compared and stays.
    versions: Vec<(ObjectKey, String)>,
    wished: Wished,
    /// Why some of it could not be read.
    pub(crate) errors: Vec<ApiError>,
}

/// Whether objects of others can be in the namespace of a control plane.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum NamespaceAge {
    /// This reconcile creates it, and fails if it exists: nothing is in it.
    New,
    #[default]
    Existing,
}

/// Compares what is there with what is desired.
pub(crate) async fn compare(
    context: &Context,
    observed: &Observed,
    usable: &Usable,
    applier: Applier<'_>,
    namespace: NamespaceAge,
) -> Comparison {
    let mut desired = desired(context, observed, usable);
    let wished = wished(&desired);
    let mut known = context.stores.unsettled(&observed.namespace, &wished);
    let found =
        fetch_objects(applier.api, applier.stores, std::mem::take(&mut known.unknown)).await;
    known.observed.extend(found.objects);
    // What cannot be read now is left as it is, and everything else goes on.
    desired.retain(|object| !found.unread.contains(&object.key));
    let versions = versions_of(&known);
    let open: Vec<_> =
        desired.into_iter().filter(|object| !known.settled.contains(&object.key)).collect();
    let label = cluster_label(observed.key.name());
    let pruning = pruning(&observed.owner, &label);
    let mut changes = diff(&known.observed, &open, pruning);
    let strangers = match namespace {
        NamespaceAge::New => Found::default(),
        NamespaceAge::Existing => fetch_strangers(applier.api, &observed.namespace, &changes).await,
    };
    if !strangers.objects.is_empty() {
        known.observed.extend(strangers.objects);
        changes = diff(&known.observed, &open, pruning);
    }
    changes.retain(|change| !strangers.unread.contains(change.key()));
    let errors = found.errors.into_iter().chain(strangers.errors).collect();
    // What is settled is desired: it was left out of the comparison alone.
    changes.retain(|change| !known.settled.contains(change.key()));
    let (settled, encrypts) = (known.settled, usable.cluster.encryption.is_some());
    Comparison { changes, open, settled, encrypts, versions, wished, errors }
}

fn versions_of(known: &Unsettled) -> Vec<(ObjectKey, String)> {
    let stays = known.observed.iter().filter(|(_, object)| !object.is_deleting());
    stays.map(|(key, it)| (key.clone(), it.resource_version.clone())).collect()
}

/// What is desired, without the kinds that cannot be used: what brings their objects is broken, and
/// all else goes on.
fn desired(context: &Context, observed: &Observed, usable: &Usable) -> Vec<DesiredObject> {
    let settings = &context.settings;
    let inputs = Inputs {
        wire: &usable.wire,
        mode: settings.role.mode(),
        owner: observed.owner.clone(),
        vault_reader: settings.vault_reader,
        templates: &settings.templates,
        refresh: settings.refresh,
        private_router: observed.private_router,
    };
    let mut desired = desired_objects(&usable.cluster, &inputs);
    desired.retain(|it| !observed.leaves_out(it.key.kind));
    desired
}

/// What is not desired is deleted only where the control plane that owns it is known.
const fn pruning<'a>(owner: &'a Owner, label: &'a str) -> Pruning<'a> {
    match owner {
        Owner::Known(uid) => Pruning::Of { cluster_label: label, owner_uid: uid.as_str() },
        Owner::NotYet | Owner::Blank => Pruning::Never,
    }
}

impl Comparison {
    /// Whether an object is there as it is desired.
    pub(crate) fn is_as_desired(&self, key: &ObjectKey) -> bool {
        let mut changes = self.changes.iter().filter(|change| change.key() == key).peekable();
        let is_kept = changes.peek().is_some()
            && changes.all(|change| matches!(change, Change::Keep { .. }))
            && self.versions.iter().any(|(stays, _)| stays == key);
        self.settled.contains(key) || is_kept
    }

    /// Leaves objects as they are.
    pub(crate) fn leave(&mut self, keys: &[ObjectKey]) {
        self.changes.retain(|change| !keys.contains(change.key()));
    }

    /// Makes the changes that need not wait, and remembers what needs none. Tells when the first of
    /// those that wait, because somebody else writes the same, may be made.
    pub(crate) async fn apply(
        mut self,
        context: &Context,
        observed: &Observed,
        applier: Applier<'_>,
    ) -> (Applied, Option<Duration>) {
        self.settle(observed, applier);
        let (open, held) = self.take_open(context, observed);
        let mut paths: HashMap<_, Vec<String>> = HashMap::new();
        for change in &open {
            paths.entry(change.key().clone()).or_default().extend(paths_of(change));
        }
        let applied = applier.apply(open).await;
        for key in &applied.written {
            let told = || {
                let rival = context.stores.rival(&observed.namespace, key);
                let paths = contested(paths.remove(key).unwrap_or_default(), rival.as_deref());
                ChangedObject { object: key.to_string(), paths }
            };
            context.wrote(&observed.key, Subject::Object(key), self.wish(key), told);
        }
        if !applied.written.is_empty() {
            self.look_again(observed, applier);
        }
        (applied, held)
    }

    /// The changes that need not wait, and when the first of the others may be made.
    fn take_open(
        &mut self,
        context: &Context,
        observed: &Observed,
    ) -> (Vec<Change>, Option<Duration>) {
        let (mut open, mut held) = (Vec::new(), None);
        let secret = |change: &Change| waits_for(change).filter(|_| self.encrypts);
        let is_ready = |secret: &ObjectKey| self.is_as_desired(secret);
        let waiting: Vec<_> =
            self.changes.iter().filter_map(secret).filter(|it| !is_ready(it)).collect();
        for change in std::mem::take(&mut self.changes) {
            let (subject, wish) = (Subject::Object(change.key()), self.wish(change.key()));
            match context.held_until(&observed.key, subject, wish) {
                Some(due) if change.is_write() => held = held.into_iter().chain([due]).min(),
                _ => open.push(change),
            }
        }
        // What of it is not about to be made keeps what rolls for it from rolling.
        let is_made = |it: &ObjectKey| open.iter().any(|made| made.is_write() && made.key() == it);
        let left: Vec<_> = waiting.into_iter().filter(|secret| !is_made(secret)).collect();
        open.retain(|change| waits_for(change).is_none_or(|secret| !left.contains(&secret)));
        (open, held)
    }

    /// A digest of what is desired of an object; zero where nothing is.
    fn wish(&self, key: &ObjectKey) -> u64 {
        self.wished.get(key).copied().unwrap_or_default()
    }

    /// Compares what the answers to the writes told. At the next look the content would still be
    /// there, and the next look comes after those of all clusters that wait.
    fn look_again(mut self, observed: &Observed, applier: Applier<'_>) {
        let known = applier.stores.unsettled(&observed.namespace, &self.wished);
        self.open.retain(|object| !known.settled.contains(&object.key));
        self.changes = diff(&known.observed, &self.open, Pruning::Never);
        self.versions = versions_of(&known);
        self.settle(observed, applier);
    }

    /// Remembers what is as it should be.
    fn settle(&self, observed: &Observed, applier: Applier<'_>) {
        let good: Vec<_> =
            self.versions.iter().filter(|(key, _)| self.is_as_desired(key)).cloned().collect();
        applier.stores.settle(&observed.namespace, &good, &self.wished);
    }

    /// What differs and stays so, because nothing is written now.
    pub(crate) fn left(&self) -> Vec<ChangedObject> {
        let differs = self.changes.iter().filter_map(|change| match change {
            Change::Foreign { object, why } => {
                let paths = why.iter().map(FieldPath::to_string).collect();
                Some(ChangedObject { object: object.key.to_string(), paths })
            }
            Change::Apply { object, why, foreign, .. } => {
                let paths = why.iter().chain(foreign).map(FieldPath::to_string).collect();
                Some(ChangedObject { object: object.key.to_string(), paths })
            }
            _ => None,
        });
        differs.collect()
    }
}

fn paths_of(change: &Change) -> Vec<String> {
    ChangedObject::of(change).map(|it| it.paths).unwrap_or_default()
}

/// What is told of an object that is set back again and again.
fn contested(paths: Vec<String>, rival: Option<&str>) -> Vec<String> {
    let rival = rival.unwrap_or("somebody else");
    if paths.is_empty() {
        return vec![format!("taken away again and again by {rival}")];
    }
    paths.into_iter().map(|path| format!("{path} (written again and again by {rival})")).collect()
}

/// What others hold otherwise than it is desired.
pub(crate) fn held_by_others(failures: &[(ObjectKey, ApiError)]) -> Vec<ChangedObject> {
    let held = failures.iter().filter_map(|(key, error)| match error {
        ApiError::Conflict { conflicts, .. } => {
            let field = |it: &lanyard_kubernetes::FieldConflict| {
                format!("{} (held by {})", it.field.trim_start_matches('.'), it.manager)
            };
            let paths = conflicts.iter().map(field).collect();
            Some(ChangedObject { object: key.to_string(), paths })
        }
        _ => None,
    });
    held.collect()
}
