"""Authentication of requests (`authentication`), authorization (`permissions`), and the safety of
connections (`encryption`, `origin`).

Users and their token hashes are stored by `server.store.users`. The sign-in page is
`server.dashboard.sign_in`.
"""
