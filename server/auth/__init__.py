"""Who sent a request (`authentication`), what they may do (`permissions`), and which connections
are safe (`encryption`, `origin`, `unix_socket`).

Users and the hashes of their tokens are rows: `server.store.users`. The sign-in page is
`server.dashboard.sign_in`.
"""
