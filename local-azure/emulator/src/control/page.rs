//! The web page of the emulator: shows resources, identities and the request log in a browser on this machine.
//!
//! The page itself contains no data. Its script reads the control API of its own origin, with the header that
//! pages of other origins cannot send.

use http::StatusCode;
use lanyard_emulator_state::request::ServiceReply;

/// Permits the page to load its own script and style sheet and to send requests to its own origin.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /`
pub(super) fn get_page() -> ServiceReply {
    asset("text/html; charset=utf-8", include_str!("page/page.html"))
}

/// `GET /lanyard/page.css`
pub(super) fn get_style_sheet() -> ServiceReply {
    asset("text/css; charset=utf-8", include_str!("page/page.css"))
}

/// `GET /lanyard/page.js`
pub(super) fn get_script() -> ServiceReply {
    asset("text/javascript; charset=utf-8", include_str!("page/page.js"))
}

fn asset(content_type: &'static str, text: &'static str) -> ServiceReply {
    ServiceReply::empty(StatusCode::OK)
        .with_body(content_type, text)
        .with_header("content-security-policy", CONTENT_SECURITY_POLICY)
        .with_header("cross-origin-resource-policy", "same-origin")
        .with_header("cross-origin-opener-policy", "same-origin")
        .with_header("referrer-policy", "no-referrer")
        .with_header("x-content-type-options", "nosniff")
        .with_header("cache-control", "no-cache")
}

#[cfg(test)]
mod tests {
    use http::Method;

    use crate::testing::{EngineFixture, azure_with_test_principals};
    use lanyard_emulator_core::ingress::Ingress;
    use lanyard_emulator_state::request::ServiceReply;

    fn get(probe: &EngineFixture, ingress: Ingress, path: &str) -> ServiceReply {
        probe.send_request(ingress, &Method::GET, &format!("http://127.0.0.1{path}"), &[], "")
    }

    #[test]
    fn page_and_its_files_are_served_to_this_machine_only() {
        let probe = EngineFixture::new(azure_with_test_principals());
        for (path, content_type) in [
            ("/", "text/html; charset=utf-8"),
            ("/lanyard/page.css", "text/css; charset=utf-8"),
            ("/lanyard/page.js", "text/javascript; charset=utf-8"),
        ] {
            let reply = get(&probe, Ingress::Port, path);
            assert_eq!(reply.status, 200, "{path}");
            assert_eq!(reply.header("content-type"), Some(content_type));
            let policy = reply.header("content-security-policy").unwrap();
            assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"));
            assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
            for ingress in [Ingress::RemotePort, Ingress::ForeignHostName] {
                assert_eq!(get(&probe, ingress, path).status, 403, "{ingress:?} {path}");
            }
        }
        assert_eq!(get(&probe, Ingress::Port, "/favicon.ico").status, 404);
    }

    #[test]
    fn page_loads_only_files_that_the_emulator_serves() {
        let page = include_str!("page/page.html");
        let targets =
            ["href=\"", "src=\""].into_iter().flat_map(|attribute| page.split(attribute).skip(1));
        let targets: Vec<_> = targets.filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(targets, ["data:,", "/lanyard/page.css", "/lanyard/page.js"]);
        for text in [page, include_str!("page/page.css"), include_str!("page/page.js")] {
            let external =
                text.split("https://").skip(1).find(|rest| !rest.starts_with("www.w3.org/WAI"));
            assert!(external.is_none(), "{external:?}");
        }
        for markup in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", " style="]
        {
            assert!(!include_str!("page/page.js").contains(markup) && !page.contains(markup));
        }
    }
}
