//! The CEL function `isURL` of the API server: it accepts a request URI as parsed by Go's
//! `net/url`, which includes absolute paths and nearly any text after a scheme.

/// Returns whether the text is an absolute URI or an absolute path.
pub(super) fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|c| c < ' ' || c == '\u{7f}') {
        return false;
    }
    let Some((scheme, rest)) = split_scheme(text) else { return false };
    let rest = rest.split('?').next().unwrap_or_default();
    if !rest.starts_with('/') {
        // Go does not parse an opaque URI, such as `urn:x`, any further.
        return !scheme.is_empty() || text == "*";
    }
    let authority = rest.strip_prefix("//").filter(|_| !scheme.is_empty());
    let Some(authority) = authority else { return has_valid_escapes(rest) };
    let (authority, path) = match authority.find('/') {
        Some(end) => authority.split_at(end),
        None => (authority, ""),
    };
    is_authority(authority) && has_valid_escapes(path)
}

/// Splits off the scheme, which is empty if there is none. Returns `None` if the text begins with a
/// colon.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let ends = |c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c));
    let (scheme, rest) = text.split_at(text.find(ends).unwrap_or(text.len()));
    let Some(rest) = rest.strip_prefix(':') else { return Some(("", text)) };
    if scheme.is_empty() {
        None
    } else if scheme.starts_with(|c: char| c.is_ascii_alphabetic()) {
        Some((scheme, rest))
    } else {
        Some(("", text))
    }
}

fn is_authority(authority: &str) -> bool {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let of_user = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(of_user) || !has_valid_escapes(user) {
        return false;
    }
    let (host, port) = match host.strip_prefix('[') {
        Some(inside) => match inside.split_once(']') {
            Some((address, port)) => (address, port),
            None => return false,
        },
        None => host.rfind(':').map_or((host, ""), |colon| host.split_at(colon)),
    };
    let of_host = |c: char| {
        !c.is_ascii() || c.is_ascii_alphanumeric() || "!$&'()*+,;=:[]<>\"-._~".contains(c)
    };
    let is_port = port.is_empty()
        || port.strip_prefix(':').is_some_and(|port| port.chars().all(|c| c.is_ascii_digit()));
    is_port && host.chars().all(of_host)
}

/// Returns whether every `%` is followed by two hexadecimal digits.
fn has_valid_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|after| {
        after.len() >= 2 && after.bytes().take(2).all(|digit| digit.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_uri_follows_the_api_server() {
        let taken = [
            "https://kubernetes.default.svc",
            "https://oidc.example:8443/a?b=c#d",
            "https://user:word@oidc.example/",
            "https://[::1]:443/x",
            "https://",
            "/issuer",
            "urn:issuer",
            "*",
            "https://ä.example",
        ];
        for text in taken {
            assert!(is_request_uri(text), "{text}");
        }
        let refused = [
            "",
            "foo",
            "not a url",
            ":8080",
            "1http://x",
            "https://a b",
            "https://oidc.example:port",
            "https://[::1",
            "https://oidc.example/%zz",
            "https://oidc.example/\n",
            "?query",
        ];
        for text in refused {
            assert!(!is_request_uri(text), "{text}");
        }
    }
}
