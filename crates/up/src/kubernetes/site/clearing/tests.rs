use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use lanyard_clock::{Clock as _, ManualClock, SharedClock};
use lanyard_kubernetes::KubernetesApi;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::kubernetes::ledger::{Certainty, Ledger, RUN};

/// A server that has just what stands on the road, by path.
#[derive(Debug, Default)]
struct Server {
    objects: BTreeMap<String, Value>,
    /// What is answered to a method and a path instead, and how many times.
    refusals: Vec<(Method, String, StatusCode, u32)>,
    deleted: Vec<String>,
}

impl Server {
    fn answer(&mut self, method: &Method, path: &str, body: &Value) -> (StatusCode, Value) {
        let refusal = self
            .refusals
            .iter_mut()
            .find(|(of, at, _, times)| of == method && at == path && *times > 0);
        if let Some((_, _, status, times)) = refusal {
            *times -= 1;
            return failure(*status, "refused");
        }
        if let Some(found) = kinds(path) {
            return (StatusCode::OK, found);
        }
        if let Some(listed) = self.list(path) {
            return (StatusCode::OK, listed);
        }
        let Some(found) = self.objects.get(path).cloned() else {
            return failure(StatusCode::NOT_FOUND, path.rsplit('/').next().unwrap());
        };
        if *method == Method::DELETE {
            let expected = &body["preconditions"]["uid"];
            if !expected.is_null() && *expected != found["metadata"]["uid"] {
                return failure(StatusCode::CONFLICT, "it is another one");
            }
            self.objects.remove(path);
            self.deleted.push(path.to_owned());
        }
        (StatusCode::OK, found)
    }

    fn list(&self, path: &str) -> Option<Value> {
        let plural = path.rsplit('/').next()?;
        ["secrets", "configmaps", "hostedclusters", "boats"].contains(&plural).then(|| {
            let below = |(at, object): (&String, &Value)| {
                let (parent, _) = at.rsplit_once('/')?;
                let (root, _) = path.rsplit_once('/')?;
                let is_there = parent == path || (parent.ends_with(plural) && at.starts_with(root));
                is_there.then(|| object.clone())
            };
            let items: Vec<_> = self.objects.iter().filter_map(below).collect();
            json!({"metadata": {}, "items": items})
        })
    }
}

/// Which kinds there are: those whose objects matter here.
fn kinds(path: &str) -> Option<Value> {
    let resources = |kinds: &[(&str, &str, &str, &str)]| -> Vec<Value> {
        let resource = |(group, version, kind, plural): &(&str, &str, &str, &str)| {
            json!({
                "resource": plural, "scope": "Namespaced", "verbs": ["list", "delete"],
                "responseKind": {"group": group, "version": version, "kind": kind},
            })
        };
        kinds.iter().map(resource).collect()
    };
    let items = match path {
        "/api" => json!([{"metadata": {"name": ""}, "versions": [{
            "version": "v1",
            "resources": resources(&[
                ("", "v1", "Secret", "secrets"),
                ("", "v1", "ConfigMap", "configmaps"),
            ]),
        }]}]),
        "/apis" => json!([{"metadata": {"name": "hypershift.openshift.io"}, "versions": [{
            "version": "v1beta1",
            "resources": resources(&[
                ("hypershift.openshift.io", "v1beta1", "HostedCluster", "hostedclusters"),
            ]),
        }]}]),
        _ => return None,
    };
    let kind = "APIGroupDiscoveryList";
    Some(
        json!({"kind": kind, "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}),
    )
}

fn failure(status: StatusCode, what: &str) -> (StatusCode, Value) {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": what, "reason": "Trial", "code": status.as_u16(), "details": {"name": what},
    });
    (status, body)
}

const CLUSTERS: &str = "/apis/hypershift.openshift.io/v1beta1/namespaces/clusters/hostedclusters";
const IDENTITIES: &str =
    "/apis/lanyard.dev/v1alpha1/namespaces/clusters/hostedclusteridentities/harbour";
const NAMESPACE: &str = "/api/v1/namespaces/clusters";
const NODE: &str = "/api/v1/nodes/lanyard-up-0a1b2c3d";
const BOATS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boats.example.com";

/// A site whose run made everything, and the server where it is.
struct Scene {
    server: Arc<Mutex<Server>>,
    clock: ManualClock,
    site: Site,
}

impl Scene {
    fn new() -> Self {
        let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let server = Arc::<Mutex<Server>>::default();
        let shared = Arc::clone(&server);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&shared);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let (status, answer) = server.lock().answer(&parts.method, parts.uri.path(), &body);
                let body = Body::from(serde_json::to_vec(&answer).unwrap());
                Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
            }
        });
        let of_test: SharedClock = Arc::new(clock.clone());
        let api = KubernetesApi::of_client(kube::Client::new(service, "default"), of_test);
        let things = [
            Thing::Cluster,
            Thing::Identities,
            Thing::Node,
            Thing::Namespace,
            Thing::Definition("boats.example.com".to_owned()),
        ];
        let site = Site {
            api,
            names: Names {
                run: "0a1b2c3d".to_owned(),
                namespace: "clusters".to_owned(),
                cluster: "harbour".to_owned(),
                control_plane: "clusters-harbour".to_owned(),
            },
            hosted_cluster: Value::Null,
            ledger: things.into_iter().map(|thing| (thing, Certainty::Made)).collect::<Ledger>(),
            cluster_uid: Some("uid-harbour".to_owned()),
        };
        let scene = Self { server, clock, site };
        scene.put(&format!("{CLUSTERS}/harbour"), "uid-harbour", true);
        for (path, uid) in [(NAMESPACE, "uid-namespace"), (NODE, "uid-node")] {
            scene.put(path, uid, true);
        }
        scene.put(BOATS, "uid-boats", true);
        scene.change(BOATS, |boats| {
            boats["spec"] = json!({
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Boat", "plural": "boats"},
                "versions": [{"name": "v1", "served": true, "storage": true}],
            });
        });
        scene
    }

    fn put(&self, path: &str, uid: &str, is_ours: bool) {
        let name = path.rsplit('/').next().unwrap();
        let labels = if is_ours { json!({RUN: "0a1b2c3d"}) } else { json!({}) };
        let object = json!({"metadata": {"name": name, "uid": uid, "labels": labels}});
        self.server.lock().objects.insert(path.to_owned(), object);
    }

    fn change(&self, path: &str, change: impl FnOnce(&mut Value)) {
        change(self.server.lock().objects.get_mut(path).unwrap());
    }

    fn refuse(&self, method: &Method, path: &str, status: StatusCode, times: u32) {
        let refusal = (method.clone(), path.to_owned(), status, times);
        self.server.lock().refusals.push(refusal);
    }

    fn has(&self, path: &str) -> bool {
        self.server.lock().objects.contains_key(path)
    }

    /// Takes all away while virtual time passes, for a minute at most.
    async fn leave(&self) -> Leaving {
        let clock = self.clock.clone();
        let over = self.clock.sleep(Duration::from_mins(1));
        let mut leaving = std::pin::pin!(self.site.leave(over));
        loop {
            tokio::select! {
                biased;
                left = &mut leaving => return left,
                () = tokio::task::yield_now() => clock.advance(Duration::from_millis(50)),
            }
        }
    }
}

fn names(leaving: &Leaving) -> Vec<Thing> {
    leaving.left().into_iter().collect()
}

#[tokio::test]
async fn everything_of_the_run_goes_and_nothing_is_told() {
    let scene = Scene::new();
    let leaving = scene.leave().await;
    assert!(scene.server.lock().objects.is_empty(), "{:?}", scene.server.lock().objects);
    assert!(names(&leaving).is_empty() && leaving.stays().is_empty());
    assert_eq!(scene.site.left_behind(&leaving, "https://server").map(|it| it.to_string()), None);
}

#[tokio::test]
async fn a_namespace_into_which_others_put_something_stays_with_it() {
    let scene = Scene::new();
    let pier = format!("{CLUSTERS}/pier");
    scene.put(&pier, "uid-pier", false);
    scene.put(&format!("{NAMESPACE}/secrets/pull"), "uid-pull", false);
    scene.put(&format!("{NAMESPACE}/configmaps/kube-root-ca.crt"), "uid-ca", false);
    let leaving = scene.leave().await;
    assert!(scene.has(NAMESPACE) && scene.has(&pier));
    assert!(!scene.has(NODE) && !scene.has(BOATS) && !scene.has(&format!("{CLUSTERS}/harbour")));
    assert!(names(&leaving).is_empty());
    let told = scene.site.staying(&leaving).join("\n");
    for expected in ["Namespace clusters stays", "hostedclusters/pier", "secrets/pull"] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert!(!told.contains("kube-root-ca.crt"), "{told}");
    assert!(
        told.contains("kubectl delete namespace --selector lanyard.dev/run=0a1b2c3d"),
        "{told}"
    );
}

#[tokio::test]
async fn a_definition_of_which_others_made_objects_stays() {
    let scene = Scene::new();
    scene.put("/apis/example.com/v1/boats/theirs", "uid-boat", false);
    let leaving = scene.leave().await;
    assert!(scene.has(BOATS) && !scene.has(NAMESPACE));
    let stays: Vec<_> = leaving.stays().values().flatten().map(String::as_str).collect();
    assert_eq!(stays, ["boats/theirs"]);
}

#[tokio::test]
async fn an_object_of_this_run_keeps_no_definition() {
    let scene = Scene::new();
    let boat = "/apis/example.com/v1/boats/ours";
    scene.put(boat, "uid-boat", false);
    scene.change(boat, |boat| {
        boat["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "v1", "kind": "HostedCluster", "name": "harbour", "uid": "uid-harbour"},
        ]);
    });
    let leaving = scene.leave().await;
    assert!(!scene.has(BOATS) && leaving.stays().is_empty());
}

#[tokio::test]
async fn what_the_operator_told_goes_only_with_the_cluster_that_this_run_made() {
    for (owner, goes) in [(Some("uid-harbour"), true), (Some("uid-restored"), false), (None, false)]
    {
        let scene = Scene::new();
        scene.put(IDENTITIES, "uid-identities", false);
        scene.change(IDENTITIES, |identities| {
            let reference = |uid: &str| {
                json!([{"apiVersion": "v1", "kind": "HostedCluster", "name": "harbour", "uid": uid}])
            };
            identities["metadata"]["ownerReferences"] = owner.map(reference).unwrap_or_default();
        });
        scene.leave().await;
        assert_eq!(!scene.has(IDENTITIES), goes, "{owner:?}");
    }
}

#[tokio::test]
async fn calls_that_fail_for_a_while_end_nothing() {
    let scene = Scene::new();
    scene.refuse(&Method::GET, NODE, StatusCode::SERVICE_UNAVAILABLE, 20);
    scene.refuse(&Method::DELETE, NAMESPACE, StatusCode::CONFLICT, 1);
    scene.refuse(&Method::GET, "/apis", StatusCode::SERVICE_UNAVAILABLE, 3);
    let harbour = format!("{CLUSTERS}/harbour");
    scene.refuse(&Method::GET, &harbour, StatusCode::INTERNAL_SERVER_ERROR, 5);
    let leaving = scene.leave().await;
    assert!(scene.server.lock().objects.is_empty(), "{:?}", scene.server.lock().objects);
    assert!(names(&leaving).is_empty());
}

#[tokio::test]
async fn what_is_refused_keeps_nothing_else_and_is_told_with_its_removal() {
    let scene = Scene::new();
    scene.refuse(&Method::GET, NODE, StatusCode::FORBIDDEN, u32::MAX);
    let leaving = scene.leave().await;
    assert!(!scene.has(NAMESPACE) && !scene.has(BOATS));
    assert_eq!(names(&leaving), [Thing::Node]);
    let error = scene.site.left_behind(&leaving, "https://server").unwrap();
    let told = lanyard_vocabulary::causes(&error);
    assert!(
        told.contains("on https://server there may still be: Node lanyard-up-0a1b2c3d"),
        "{told}"
    );
    assert!(told.contains("HTTP 403"), "{told}");
    let hint = error.hint();
    assert!(hint.contains("kubectl delete node --selector lanyard.dev/run=0a1b2c3d"), "{hint}");
    assert!(!hint.contains("namespace"), "{hint}");
}

#[tokio::test]
async fn a_server_that_is_gone_is_told_with_all_that_was_made_there() {
    let scene = Scene::new();
    let harbour = format!("{CLUSTERS}/harbour");
    scene.refuse(&Method::GET, &harbour, StatusCode::SERVICE_UNAVAILABLE, u32::MAX);
    let leaving = scene.leave().await;
    assert_eq!(names(&leaving).len(), 5);
    let hint = scene.site.left_behind(&leaving, "https://server").unwrap().hint();
    let commands: Vec<_> = hint.lines().skip(1).map(str::trim).collect();
    assert!(commands[0].starts_with("kubectl delete hostedcluster "), "{commands:?}");
    assert!(commands[1].contains(r#"'{"metadata":{"finalizers":null}}'"#), "{commands:?}");
    assert_eq!(commands.len(), 6, "{commands:?}");
}

#[tokio::test]
async fn an_object_of_the_same_name_that_is_not_of_this_run_is_let_alone() {
    let scene = Scene::new();
    for path in [NAMESPACE, NODE, BOATS] {
        scene.change(path, |object| object["metadata"]["labels"] = json!({RUN: "ffffffff"}));
    }
    let leaving = scene.leave().await;
    assert!(scene.has(NAMESPACE) && scene.has(NODE) && scene.has(BOATS));
    assert!(names(&leaving).is_empty());
    assert_eq!(scene.server.lock().deleted, [format!("{CLUSTERS}/harbour")]);
}
