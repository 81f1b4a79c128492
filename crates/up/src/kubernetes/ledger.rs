//! What a run makes on the server, and how people remove it by hand. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// Says that `lanyard up` made the object.
pub(super) const MADE_BY: (&str, &str) = ("lanyard.dev/made-by", "up");
/// Says in which run.
pub(super) const RUN: &str = "lanyard.dev/run";

/// What a run makes, in the order in which people remove it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    /// The HostedCluster.
    Cluster,
    /// The node that the pods are on: pods whose node is gone wait for no kubelet.
    Node,
    /// The namespace of its control plane, which the operator makes and removes.
    ControlPlane,
    /// What the operator tells of it.
    Identities,
    /// The namespace of the HostedCluster.
    Namespace,
    /// The definition of a kind, by its name.
    Definition(String),
}

/// Whether something was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Certainty {
    /// It was asked for, and no answer is known: it may come late.
    Asked,
    /// It was.
    Made,
}

/// What a run made. By this it knows what to look for; what it finds it takes away by its marks alone.
pub(super) type Ledger = BTreeMap<Thing, Certainty>;

/// The names of what a run makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// The run.
    pub(super) run: String,
    /// The namespace of the HostedCluster.
    pub(super) namespace: String,
    /// The HostedCluster.
    pub(super) cluster: String,
    /// The namespace of its control plane.
    pub(super) control_plane: String,
}

impl Names {
    /// The name of the node.
    pub(super) fn node(&self) -> String {
        format!("lanyard-up-{}", self.run)
    }

    /// What a thing is called.
    pub(super) fn describe(&self, thing: &Thing) -> String {
        let Self { namespace, cluster, control_plane, .. } = self;
        match thing {
            Thing::Cluster => format!("HostedCluster {namespace}/{cluster}"),
            Thing::ControlPlane => format!("Namespace {control_plane} with all that is in it"),
            Thing::Identities => format!("HostedClusterIdentities {namespace}/{cluster}"),
            Thing::Node => format!("Node {}", self.node()),
            Thing::Namespace => format!("Namespace {namespace}"),
            Thing::Definition(name) => format!("CustomResourceDefinition {name}"),
        }
    }

    /// What things are called, in the order in which they go.
    pub(super) fn list<'a>(&self, things: impl IntoIterator<Item = &'a Thing>) -> Vec<String> {
        things.into_iter().map(|thing| self.describe(thing)).collect()
    }

    /// How people remove what was left, in this order; what stays for others is touched by none of
    /// the commands.
    pub(super) fn removal(&self, left: &BTreeSet<Thing>, stays: &BTreeSet<Thing>) -> Vec<String> {
        let mut commands = Vec::new();
        let is_partial = stays.iter().any(|thing| matches!(thing, Thing::Definition(_)));
        for thing in left {
            let command = match thing {
                Thing::Cluster => {
                    commands.extend(removal_of_cluster(&self.run, &self.namespace, &self.cluster));
                    continue;
                }
                Thing::ControlPlane => {
                    format!("kubectl delete namespace {} --ignore-not-found", self.control_plane)
                }
                Thing::Identities => format!(
                    "kubectl delete hostedclusteridentities {} --namespace {} --ignore-not-found",
                    self.cluster, self.namespace
                ),
                Thing::Node => self.removal_by_run("node"),
                Thing::Namespace => self.removal_by_run("namespace"),
                Thing::Definition(name) if is_partial => {
                    let by_run = self.removal_by_run("customresourcedefinition");
                    format!("{by_run} --field-selector metadata.name={name}")
                }
                Thing::Definition(_) => self.removal_by_run("customresourcedefinition"),
            };
            if commands.last() != Some(&command) {
                commands.push(command);
            }
        }
        commands
    }

    /// The command for what stays for others, once these are done with it.
    pub(super) fn removal_of_one(&self, thing: &Thing) -> String {
        let stays = BTreeSet::from([thing.clone()]);
        self.removal(&stays, &stays).join(" && ")
    }

    fn removal_by_run(&self, kind: &str) -> String {
        format!("kubectl delete {kind} --selector {RUN}={}", self.run)
    }
}

/// How people remove the HostedCluster of a run whose operator has ended: nobody takes the finalizer
/// off any more.
pub(super) fn removal_of_cluster(run: &str, namespace: &str, cluster: &str) -> [String; 2] {
    [
        format!(
            "kubectl delete hostedcluster --namespace {namespace} --selector {RUN}={run} --wait=false"
        ),
        format!(
            "kubectl patch hostedcluster {cluster} --namespace {namespace} --type merge \
             --patch '{{\"metadata\":{{\"finalizers\":null}}}}'"
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names {
            run: "0a1b2c3d".to_owned(),
            namespace: "clusters".to_owned(),
            cluster: "harbour".to_owned(),
            control_plane: "clusters-harbour".to_owned(),
        }
    }

    fn definition(name: &str) -> Thing {
        Thing::Definition(format!("{name}.example.com"))
    }

    #[test]
    fn everything_is_removed_by_the_run_and_the_finalizer_before_what_waits_for_it() {
        let left = BTreeSet::from([
            definition("boats"),
            definition("piers"),
            Thing::Namespace,
            Thing::Node,
            Thing::Identities,
            Thing::ControlPlane,
            Thing::Cluster,
        ]);
        let by_run = "--selector lanyard.dev/run=0a1b2c3d";
        let expected = [
            format!("kubectl delete hostedcluster --namespace clusters {by_run} --wait=false"),
            "kubectl patch hostedcluster harbour --namespace clusters --type merge \
             --patch '{\"metadata\":{\"finalizers\":null}}'"
                .to_owned(),
            format!("kubectl delete node {by_run}"),
            "kubectl delete namespace clusters-harbour --ignore-not-found".to_owned(),
            "kubectl delete hostedclusteridentities harbour --namespace clusters \
             --ignore-not-found"
                .to_owned(),
            format!("kubectl delete namespace {by_run}"),
            format!("kubectl delete customresourcedefinition {by_run}"),
        ];
        assert_eq!(names().removal(&left, &BTreeSet::new()), expected);
    }

    #[test]
    fn a_definition_that_stays_for_others_is_spared_by_the_commands_for_the_rest() {
        let left = BTreeSet::from([definition("boats")]);
        let stays = BTreeSet::from([definition("piers")]);
        let expected =
            ["kubectl delete customresourcedefinition --selector lanyard.dev/run=0a1b2c3d \
             --field-selector metadata.name=boats.example.com"];
        assert_eq!(names().removal(&left, &stays), expected);
    }

    #[test]
    fn what_was_not_left_is_in_no_command() {
        assert!(names().removal(&BTreeSet::new(), &BTreeSet::new()).is_empty());
        let left = BTreeSet::from([Thing::Node]);
        let commands = names().removal(&left, &BTreeSet::new());
        assert_eq!(commands, ["kubectl delete node --selector lanyard.dev/run=0a1b2c3d"]);
    }
}
