use super::*;

#[test]
fn star_matches_any_run_of_characters() {
    let cases = [
        ("*", "/anything", true),
        ("/secrets/*", "/Secrets/a/b", true),
        ("/secrets/*", "/secrets", false),
        ("*/secrets/*/x", "/a/secrets/b/x", true),
        ("/a", "/a", true),
        ("/a", "/ab", false),
        ("/a*a", "/a", false),
        ("/a*b*c", "/a-c-b-c", true),
    ];
    for (pattern, text, expected) in cases {
        assert_eq!(glob_matches(pattern, text), expected, "{pattern} {text}");
    }
}

fn rule_hits(rule: &Value, at: &[i64]) -> Vec<bool> {
    rule_names_hit(std::slice::from_ref(rule), at).iter().map(Option::is_some).collect()
}

/// The names of the rules that affect requests at these seconds.
fn rule_names_hit(rules: &[Value], at: &[i64]) -> Vec<Option<String>> {
    let epoch = crate::testing::start_time();
    let mut faults = FaultRules::default();
    for rule in rules {
        let rule: FaultRule = serde_json::from_value(rule.clone()).unwrap();
        faults.insert(rule.with_resolved_end(epoch).unwrap());
    }
    let request = ServiceRequest {
        method: http::Method::GET,
        scheme: crate::request::RequestScheme::Https,
        host: "kv.vault.azure.net".to_owned(),
        port: 443,
        client_ip: None,
        path: "/secrets/a".to_owned(),
        query: Vec::new(),
        headers: http::HeaderMap::new(),
        body: bytes::Bytes::new(),
    };
    let later = |seconds: &i64| epoch + SignedDuration::from_secs(*seconds);
    let hits =
        at.iter().map(|at| faults.match_request(AzureService::KeyVault, &request, later(at)));
    hits.map(|hit| hit.map(|hit| hit.rule_name)).collect()
}

#[test]
fn request_below_the_rate_limit_falls_through_to_next_rule() {
    let limit = serde_json::json!({
        "name": "limit", "beyond": { "requests": 2, "seconds": 10 },
        "effect": { "type": "throttle", "retryAfter": 5 },
    });
    let outage = serde_json::json!({
        "name": "outage", "seconds": 5, "effect": { "type": "status", "status": 503 },
    });
    let [limited, out] = ["limit", "outage"].map(|name| Some(name.to_owned()));
    let hits = rule_names_hit(&[limit.clone(), outage.clone()], &[0, 1, 2, 9, 10]);
    assert_eq!(hits, [out.clone(), out.clone(), limited.clone(), limited.clone(), None]);
    // A request that the outage affects does not count for the limit behind it.
    let hits = rule_names_hit(&[outage, limit], &[0, 1, 2, 9, 10, 11]);
    assert_eq!(hits, [out.clone(), out.clone(), out, None, None, limited]);
}

#[test]
fn rule_with_conflicting_or_unrepresentable_end_is_rejected() {
    let effect = serde_json::json!({ "type": "reset" });
    for ends in [
        serde_json::json!({ "until": "2026-11-21T13:00:00Z" }),
        serde_json::json!({ "from": "9999-12-30T00:00:00Z" }),
    ] {
        let mut rule = serde_json::json!({ "name": "r", "seconds": u32::MAX, "effect": effect });
        for (key, value) in ends.as_object().unwrap() {
            rule[key] = value.clone();
        }
        let rule: FaultRule = serde_json::from_value(rule).unwrap();
        rule.with_resolved_end(crate::testing::start_time()).unwrap_err();
    }
}

#[test]
fn outage_starts_and_ends_by_emulated_time() {
    let effect = serde_json::json!({ "type": "status", "status": 503 });
    let hour = serde_json::json!({ "name": "outage", "seconds": 3_600, "effect": effect });
    assert_eq!(rule_hits(&hour, &[0, 3_599, 3_600]), [true, true, false]);
    let later = serde_json::json!({
        "name": "outage", "from": "2026-11-21T12:01:00Z", "seconds": 60, "effect": effect,
    });
    assert_eq!(rule_hits(&later, &[0, 59, 60, 119, 120]), [false, false, true, true, false]);
}

#[test]
fn rate_limit_hits_only_requests_above_the_rate() {
    let limit = serde_json::json!({
        "name": "limit", "host": "kv.vault.azure.net",
        "beyond": { "requests": 2, "seconds": 10 },
        "effect": { "type": "throttle", "retryAfter": 5 },
    });
    let hits = rule_hits(&limit, &[0, 1, 2, 9, 10, 11, 12]);
    assert_eq!(hits, [false, false, true, true, false, false, true]);
}

fn request(service: AzureService, method: &http::Method, path: &str) -> ServiceRequest {
    let host =
        if service == AzureService::Arm { "management.azure.com" } else { "kv.vault.azure.net" };
    ServiceRequest {
        method: method.clone(),
        scheme: crate::request::RequestScheme::Https,
        host: host.to_owned(),
        port: 443,
        client_ip: None,
        path: path.to_owned(),
        query: vec![("api-version".to_owned(), "2024-01-01".to_owned())],
        headers: http::HeaderMap::new(),
        body: bytes::Bytes::new(),
    }
}

fn rule(json: Value) -> FaultRule {
    FaultRule::from_json(json).unwrap()
}

/// Which of `count` requests the rule affects.
fn affected(json: Value, count: usize, request: &ServiceRequest) -> Vec<bool> {
    let mut faults = FaultRules::default();
    faults.insert(rule(json));
    let now = crate::testing::start_time();
    (0..count)
        .map(|_| faults.match_request(AzureService::KeyVault, request, now).is_some())
        .collect()
}

#[test]
fn every_nth_request_is_affected() {
    let get = request(AzureService::KeyVault, &http::Method::GET, "/secrets/a");
    let json = serde_json::json!({ "name": "n", "after": 1, "every": 3, "times": 2, "effect": { "type": "reset" } });
    assert_eq!(
        affected(json, 9, &get),
        [false, true, false, false, true, false, false, false, false]
    );
}

#[test]
fn percentage_is_reproducible_and_depends_on_the_seed() {
    let get = request(AzureService::KeyVault, &http::Method::GET, "/secrets/a");
    let json = |seed: u64| serde_json::json!({ "name": "p", "percent": 30, "seed": seed, "effect": { "type": "reset" } });
    let first = affected(json(1), 1_000, &get);
    assert_eq!(first, affected(json(1), 1_000, &get));
    assert_ne!(first, affected(json(2), 1_000, &get));
    let count = first.iter().filter(|is_hit| **is_hit).count();
    assert!((250..350).contains(&count), "{count}");
}

#[test]
fn api_version_and_principal_select_requests() {
    let id = "22222222-0000-4000-8000-0000000000a1";
    let mut get = request(AzureService::KeyVault, &http::Method::GET, "/secrets/a");
    let effect = serde_json::json!({ "type": "reset" });
    let by = |field: &str, value: &str| serde_json::json!({ "name": "r", field: value, "effect": effect });
    assert_eq!(affected(by("apiVersion", "2024-01-01"), 1, &get), [true]);
    assert_eq!(affected(by("apiVersion", "2024-02-01"), 1, &get), [false]);
    assert_eq!(affected(by("principal", id), 1, &get), [false]);
    for claim in ["oid", "appid", "azp"] {
        let claims = serde_json::json!({ claim: id });
        let header = serde_json::json!({ "alg": "RS256" });
        let token = crate::testing::sign_token(&header, &claims, &crate::testing::client_key());
        let value = http::HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        get.headers.insert("authorization", value);
        assert_eq!(affected(by("principal", id), 1, &get), [true], "{claim}");
    }
    get.headers.clear();
    get.body = format!("client_id={id}").into();
    assert_eq!(affected(by("principal", id), 1, &get), [true]);
    assert_eq!(affected(by("clientId", id), 1, &get), [true]);
}

#[test]
fn names_are_camel_case_and_names_of_earlier_versions_are_accepted() {
    let id = "22222222-0000-4000-8000-0000000000a1";
    let camel_case = serde_json::json!({
        "name": "r", "apiVersion": "2024-01-01", "clientId": id,
        "bucket": { "capacity": 1, "refill": 1, "sharedBy": "principal" },
        "effect": { "type": "throttle", "retryAfter": 5, "retryAfterMs": 250 },
    });
    let serialized = serde_json::to_value(rule(camel_case.clone())).unwrap();
    for pointer in [
        "/apiVersion",
        "/clientId",
        "/bucket/sharedBy",
        "/effect/retryAfter",
        "/effect/retryAfterMs",
    ] {
        assert_eq!(serialized.pointer(pointer), camel_case.pointer(pointer), "{pointer}");
    }
    assert!(!serialized.to_string().contains('_'), "{serialized}");

    let snake_case = serde_json::json!({
        "name": "r", "api_version": "2024-01-01", "client_id": id,
        "bucket": { "capacity": 1, "refill": 1, "shared_by": "principal" },
        "effect": { "type": "throttle", "retry_after": 5, "retry_after_ms": 250 },
    });
    assert_eq!(rule(snake_case), rule(camel_case));
    let status = |names: [&str; 2]| {
        rule(serde_json::json!({
            "name": "r",
            "effect": { "type": "status", "status": 503, names[0]: 5, names[1]: 250 },
        }))
    };
    assert_eq!(status(["retry_after", "retry_after_ms"]), status(["retryAfter", "retryAfterMs"]));
}

#[test]
fn published_limits_are_those_of_each_kind_of_request() {
    let now = crate::testing::start_time();
    for (service, method, path, permitted) in [
        (AzureService::Arm, http::Method::GET, "/subscriptions/s/resourceGroups", 250),
        (AzureService::Arm, http::Method::DELETE, "/subscriptions/s/resourceGroups/g", 200),
        (AzureService::KeyVault, http::Method::PUT, "/secrets/a", 300),
        (AzureService::KeyVault, http::Method::POST, "/keys/a/create", 20),
        (AzureService::KeyVault, http::Method::GET, "/secrets/a", 4_000),
        (AzureService::Imds, http::Method::GET, "/metadata/identity/oauth2/token", 20),
        (AzureService::Entra, http::Method::POST, "/t/oauth2/v2.0/token", usize::MAX),
    ] {
        let mut faults = FaultRules::default();
        faults.insert(rule(serde_json::json!({
            "name": "l", "limits": "published", "effect": { "type": "throttle" },
        })));
        let request = request(service, &method, path);
        let affected =
            (0..4_100).position(|_| faults.match_request(service, &request, now).is_some());
        assert_eq!(affected.unwrap_or(usize::MAX), permitted, "{path}");
    }
}

const IDENTITY: &str =
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities";
const CLUSTERS: &str =
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters";

/// The waits, in seconds, of one request for each path, with the limits that Azure publishes.
fn waits(
    method: &http::Method,
    paths: impl Iterator<Item = String>,
) -> Vec<Option<(i64, Option<ThrottlingProvider>)>> {
    let mut faults = FaultRules::default();
    faults.insert(rule(serde_json::json!({
        "name": "l", "limits": "published", "effect": { "type": "throttle" },
    })));
    let now = crate::testing::start_time();
    let wait = |path: String| {
        let request = request(AzureService::Arm, method, &path);
        let hit = faults.match_request(AzureService::Arm, &request, now)?;
        Some((hit.wait?.as_secs(), hit.provider))
    };
    paths.map(wait).collect()
}

#[test]
fn federated_credentials_of_an_identity_share_the_limit_of_the_identity() {
    let of = |name: &str| format!("{IDENTITY}/{name}/federatedIdentityCredentials/c");
    let paths = [format!("{IDENTITY}/one"), of("ONE"), of("two"), of("three")];
    let expected = |seconds| Some((seconds, Some(ThrottlingProvider::ManagedIdentity)));
    let writes = waits(&http::Method::PUT, paths.iter().cloned());
    // The second write exceeds the limit of the identity, the others that of the subscription.
    assert_eq!(writes, [None, expected(4), expected(0), expected(0)]);
    let reads = waits(&http::Method::GET, [of("one"), of("one"), of("two")].into_iter());
    assert_eq!(reads, [None, expected(2), None]);
    let listed = format!("{IDENTITY}/one/federatedIdentityCredentials");
    let lists = waits(&http::Method::GET, [listed.clone(), listed].into_iter());
    assert_eq!(lists, [None, expected(4)]);
}

#[test]
fn requests_to_managed_clusters_have_the_limits_of_their_provider() {
    let status = "/subscriptions/s/providers/Microsoft.ContainerService/locations/l/operations/o";
    for (method, path, burst, seconds) in [
        (http::Method::PUT, format!("{CLUSTERS}/aks"), 20, 60),
        (http::Method::GET, format!("{CLUSTERS}/aks"), 60, 1),
        (http::Method::GET, status.to_owned(), 200, 0),
    ] {
        let waits = waits(&method, std::iter::repeat_n(path.clone(), 201));
        let first = waits.iter().position(Option::is_some).unwrap();
        let expected = Some((seconds, Some(ThrottlingProvider::ContainerService)));
        assert_eq!((first, waits[first]), (burst, expected), "{path}");
    }
    // Other clusters have other buckets, and other operations have no limit of their own.
    let writes = waits(&http::Method::PUT, (0..100).map(|at| format!("{CLUSTERS}/{at}")));
    assert_eq!(writes.iter().flatten().count(), 0);
    let pool = format!("{CLUSTERS}/aks/agentPools/a");
    assert_eq!(
        waits(&http::Method::PUT, std::iter::repeat_n(pool, 100)).iter().flatten().count(),
        0
    );
}

#[test]
fn contradictory_rules_are_rejected() {
    let effect = serde_json::json!({ "type": "reset" });
    let certificate = serde_json::json!({ "type": "certificate", "problem": "expired" });
    let tunnel = serde_json::json!({ "type": "half-closed-tunnel" });
    let limit = serde_json::json!({ "requests": 1, "seconds": 1 });
    let token_error = serde_json::json!({ "type": "token-error", "code": 700_027 });
    for (json, named) in [
        (
            serde_json::json!({ "name": "x", "beyond": { "requests": 1, "seconds": 0 }, "effect": effect }),
            "`seconds`",
        ),
        (
            serde_json::json!({ "name": "x", "bucket": { "capacity": 1, "refill": 1, "seconds": 0 }, "effect": effect }),
            "`seconds`",
        ),
        (serde_json::json!({ "name": "x", "seconds": 0, "effect": effect }), "`seconds`"),
        (
            serde_json::json!({
                "name": "x", "from": "2027-01-01T00:00:00Z", "until": "2027-01-01T00:00:00Z",
                "effect": effect,
            }),
            "`until` must be later than `from`",
        ),
        (serde_json::json!({ "name": "x", "method": "get", "effect": effect }), "upper case"),
        (serde_json::json!({ "name": "x", "effect": token_error }), "`entra`"),
        (serde_json::json!({ "name": "x", "service": "arm", "effect": token_error }), "`entra`"),
        (
            serde_json::json!({
                "name": "x",
                "effect": { "type": "status", "status": 503, "html": true, "body": "empty" },
            }),
            "`html`",
        ),
        (serde_json::json!({ "name": "", "effect": effect }), "name"),
        (serde_json::json!({ "name": "..", "effect": effect }), "`..`"),
        (serde_json::json!({ "name": "x", "service": "control", "effect": effect }), "control"),
        (serde_json::json!({ "name": "x", "every": 0, "effect": effect }), "every"),
        (serde_json::json!({ "name": "x", "percent": 101, "effect": effect }), "percent"),
        (
            serde_json::json!({ "name": "x", "beyond": limit, "limits": "published", "effect": effect }),
            "beyond",
        ),
        (serde_json::json!({ "name": "x", "path": "/a", "effect": certificate }), "`path`"),
        (serde_json::json!({ "name": "x", "beyond": limit, "effect": tunnel }), "`beyond`"),
        (
            serde_json::json!({ "name": "x", "effect": { "type": "status", "status": 99 } }),
            "status",
        ),
        (
            serde_json::json!({ "name": "x", "effect": { "type": "latency", "milliseconds": 600_001 } }),
            "ten minutes",
        ),
        (serde_json::json!({ "name": "x", "limits": "none", "effect": effect }), "published"),
    ] {
        let error = FaultRule::from_json(json.clone()).unwrap_err().to_string();
        assert!(error.contains(named), "{json}: {error}");
    }
}
