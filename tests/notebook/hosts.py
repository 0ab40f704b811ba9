"""Pages that show what a notebook displays under the rules of hosts that cannot be installed here."""

import json

# The sandbox and, with the setting notebook.experimental.enableCsp, the policy of VS Code's notebook outputs
# (backLayerWebView.ts of VS Code 1.9x; webviewGenericCspSource is written out).
VSCODE_SANDBOX = "allow-scripts allow-same-origin allow-forms allow-pointer-lock allow-downloads"
VSCODE_POLICY = (
    "default-src 'none'; script-src 'self' https://*.vscode-cdn.net 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' https://*.vscode-cdn.net 'unsafe-inline'; "
    "img-src 'self' https://*.vscode-cdn.net https: http: data:; font-src 'self' https://*.vscode-cdn.net https:; "
    "connect-src https:; child-src https: data:;"
)
# An output of Colab is in a frame of another origin. Here it is of none, which allows less.
COLAB_SANDBOX = "allow-scripts allow-downloads"

# How all of them put HTML into a document: scripts within it would run only as new elements.
INSERT = """
const box = document.getElementById('output');
box.innerHTML = JSON.parse(document.getElementById('html').textContent);
for (const old of box.querySelectorAll('script')) {
  const script = document.createElement('script');
  script.textContent = old.textContent;
  old.replaceWith(script);
}
"""


def document_of(output, head="", body="", html=""):
    data = json.dumps(output).replace("<", "\\u003c")
    return (
        f"<!DOCTYPE html><html {html}><head><meta charset='utf-8'>{head}</head><body {body}><div id='output'></div>"
        f"<script type='application/json' id='html'>{data}</script><script>{INSERT}</script></body></html>"
    )


def vscode(output):
    policy = f'<meta http-equiv="Content-Security-Policy" content="{VSCODE_POLICY}">'
    body = 'class="vscode-dark" style="color: #cccccc; background: #1f1f1f"'
    return document_of(output, policy, body), VSCODE_SANDBOX


def colab(output):
    style = "<style>[theme=dark] body { color: #e3e3e3; background: #383838 }</style>"
    return document_of(output, style, html="theme=dark"), COLAB_SANDBOX


def write_host(folder, name, inner, sandbox):
    """A page that has another one in a frame. Returns its path."""
    (folder / f"{name}_output.html").write_text(inner, encoding="utf-8")
    host = folder / f"{name}.html"
    host.write_text(
        "<!DOCTYPE html><title>host</title>"
        f"<iframe sandbox='{sandbox}' src='{name}_output.html' style='width: 100%; height: 800px'></iframe>"
    )
    return host
