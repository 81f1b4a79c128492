import com.azure.core.credential.TokenCredential;
import com.azure.core.credential.TokenRequestContext;
import com.azure.core.exception.HttpResponseException;
import com.azure.core.http.HttpClient;
import com.azure.core.http.ProxyOptions;
import com.azure.core.util.HttpClientOptions;
import com.azure.identity.ClientCertificateCredentialBuilder;
import com.azure.identity.ClientSecretCredentialBuilder;
import com.azure.identity.WorkloadIdentityCredentialBuilder;
import com.azure.security.keyvault.secrets.SecretClientBuilder;
import com.azure.security.keyvault.secrets.models.KeyVaultSecret;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.Base64;
import java.util.HexFormat;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Runs one conformance case with the Azure SDK for Java.
 *
 * <p>Usage: {@code Clients CALL:CREDENTIAL < inputs.json} or {@code Clients lifecycle:NAME < inputs.json}
 *
 * <p>Standard input is a JSON object with the inputs. Standard output is a JSON object: the result of the call, or
 * {@code {"refused": {"code", "inner", "status", "message"}}} with the error that the client reported. A lifecycle
 * prints one JSON object for each step. The clients are unmodified: only their proxy and the trust store of the JVM
 * direct their requests to the local Azure.
 */
public final class Clients {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Pattern ENTRA_CODE = Pattern.compile("AADSTS\\d+");

    private Clients() {}

    public static void main(String[] arguments) {
        int status = 0;
        try {
            run(arguments[0]);
        } catch (Throwable error) {
            error.printStackTrace();
            status = 1;
        }
        // The threads of the HTTP client keep the JVM alive.
        System.exit(status);
    }

    private static void run(String name) throws Exception {
        String[] parts = name.split(":");
        JsonNode inputs = JSON.readTree(System.in);
        Path trustStore = trustCertificates(Path.of(System.getenv("SSL_CERT_FILE")));
        HttpClient http = clientWithProxy(URI.create(System.getenv("HTTPS_PROXY")));
        try {
            if (parts[0].equals("lifecycle")) {
                runLifecycle(parts[1], inputs, http);
            } else {
                System.out.println(runCase(parts[0], parts[1], inputs, http));
            }
        } finally {
            Files.delete(trustStore);
        }
    }

    private static ObjectNode runCase(String call, String credentialName, JsonNode inputs, HttpClient http)
            throws Exception {
        ObjectNode answer = JSON.createObjectNode();
        try {
            TokenCredential credential = credential(credentialName, inputs, http);
            switch (call) {
                case "token" -> answer.set("token", readToken(credential, inputs));
                case "vault" -> answer.set("secret", readSecret(credential, inputs, http));
                default -> throw new IllegalArgumentException("unknown call " + call);
            }
        } catch (RuntimeException error) {
            answer.set("refused", errorDetails(error));
        }
        return answer;
    }

    private static void runLifecycle(String name, JsonNode inputs, HttpClient http) throws Exception {
        TokenCredential credential = credential("secret", inputs, http);
        switch (name) {
            case "key-types" -> new KeyTypes(inputs.path("vault").asText(), credential, http).run();
            default -> throw new IllegalArgumentException("unknown lifecycle " + name);
        }
    }

    /** A client of the SDK with a proxy. Workload identity uses the proxy of the JVM instead. */
    private static HttpClient clientWithProxy(URI proxy) {
        System.setProperty("https.proxyHost", proxy.getHost());
        System.setProperty("https.proxyPort", Integer.toString(proxy.getPort()));
        InetSocketAddress address = new InetSocketAddress(proxy.getHost(), proxy.getPort());
        ProxyOptions options = new ProxyOptions(ProxyOptions.Type.HTTP, address);
        return HttpClient.createDefault(new HttpClientOptions().setProxyOptions(options));
    }

    /** Sets a trust store with the certificates of a PEM file. */
    private static Path trustCertificates(Path pem) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (InputStream input = Files.newInputStream(pem)) {
            int number = 0;
            for (Certificate it : CertificateFactory.getInstance("X.509").generateCertificates(input)) {
                store.setCertificateEntry("root-" + number++, it);
            }
        }
        Path path = Files.createTempFile("trust", ".p12");
        char[] password = "changeit".toCharArray();
        try (OutputStream output = Files.newOutputStream(path)) {
            store.store(output, password);
        }
        System.setProperty("javax.net.ssl.trustStore", path.toString());
        System.setProperty("javax.net.ssl.trustStorePassword", new String(password));
        return path;
    }

    private static TokenCredential credential(String name, JsonNode inputs, HttpClient http) {
        String tenant = inputs.path("tenant").asText();
        String client = inputs.path("client").asText();
        return switch (name) {
            case "certificate" -> new ClientCertificateCredentialBuilder()
                .httpClient(http)
                .tenantId(tenant)
                .clientId(client)
                .pemCertificate(inputs.path("certificate").asText())
                .build();
            case "secret", "wrong-secret" -> new ClientSecretCredentialBuilder()
                .httpClient(http)
                .tenantId(tenant)
                .clientId(client)
                .clientSecret(name.equals("secret") ? inputs.path("client_secret").asText() : "not-the-secret")
                .build();
            case "federated" -> new WorkloadIdentityCredentialBuilder()
                .httpClient(http)
                .tenantId(tenant)
                .clientId(client)
                .tokenFilePath(inputs.path("token_file").asText())
                .build();
            default -> throw new IllegalArgumentException("unknown credential " + name);
        };
    }

    private static ObjectNode readToken(TokenCredential credential, JsonNode inputs) throws Exception {
        TokenRequestContext request = new TokenRequestContext().addScopes(inputs.path("scope").asText());
        String token = credential.getTokenSync(request).getToken();
        JsonNode claims = JSON.readTree(Base64.getUrlDecoder().decode(token.split("\\.")[1]));
        ObjectNode answer = JSON.createObjectNode();
        answer.set("appid", claims.get("appid"));
        return answer.set("tid", claims.get("tid"));
    }

    private static ObjectNode readSecret(TokenCredential credential, JsonNode inputs, HttpClient http)
            throws Exception {
        KeyVaultSecret secret = new SecretClientBuilder()
            .httpClient(http)
            .vaultUrl(inputs.path("vault").asText())
            .credential(credential)
            .buildClient()
            .getSecret(inputs.path("secret_name").asText());
        byte[] value = secret.getValue().getBytes(StandardCharsets.UTF_8);
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(value);
        return JSON.createObjectNode()
            .put("name", secret.getName())
            .put("version", secret.getProperties().getVersion())
            .put("sha256", HexFormat.of().formatHex(digest));
    }

    /** The code is the AADSTS code of Entra, or that of the vault. */
    static ObjectNode errorDetails(RuntimeException error) {
        ObjectNode answer = JSON.createObjectNode().put("message", error.getMessage());
        Matcher entra = ENTRA_CODE.matcher(error.getMessage());
        if (entra.find()) {
            return answer.put("code", entra.group());
        }
        if (!(error instanceof HttpResponseException response) || response.getResponse() == null) {
            throw error;
        }
        JsonNode body = JSON.valueToTree(response.getValue()).path("error");
        answer.put("status", response.getResponse().getStatusCode());
        answer.set("code", body.get("code"));
        return answer.set("inner", body.path("innererror").get("code"));
    }
}
