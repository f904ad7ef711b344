"""The wire models: requests and responses of the service, shared by server, client and command
line.

Importable without SQLAlchemy, DeepHyper, FastAPI or torch.
"""
