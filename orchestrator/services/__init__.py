"""What a user, a page or a worker can ask of the service. The api and the pages only translate."""
